// samplers/grammar_stages.h: the stages `grammar` of a chain, which decide where its texts may end.
//
// Threads:  pure functions.
#pragma once

#include "samplers/chain.h"

namespace foresay::samplers {

// Those of `spec` that are not switched off, by whatever name.
ChainSpec grammar_stages(const ChainSpec& spec);

// Whether texts of the chain are under a grammar. An end token then comes only where the text may end, and nothing can
// follow it, so it ends the text, also where end tokens are to be tokens like any other.
bool under_grammar(const Chain& chain);

}  // namespace foresay::samplers
