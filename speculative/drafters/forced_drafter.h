// speculative/drafters/forced_drafter.h: proposes what a stage of the chain says must come next, such as the rest of a
// key of a JSON Schema. The bytes are certain; how the target cuts them into tokens is not, and how often it does so as
// the tokenizer would is learnt.
//
// It follows the whole draft, tokens of other sources included, with a copy of the chain. For a chain that forces
// nothing it does nothing. It is no source of a configuration: it takes part wherever a chain forces.
//
// Cost:     a copy of the chain's states per round, and its stages' forced() per proposal.
#pragma once

#include <memory>

#include "speculative/drafter.h"

namespace foresay::speculative {

std::unique_ptr<Drafter> make_forced_drafter();

}  // namespace foresay::speculative
