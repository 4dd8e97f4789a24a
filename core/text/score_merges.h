// core/text/score_merges.h: merges for vocabularies that have none of their own.
#pragma once

#include <vector>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

// Any two neighbours whose texts together are a normal token merge, the best score first (scores[id], one per token;
// NaN is the worst). Fills data.merges and data.ranks. Throws Error for a token that is too long, because each place to
// cut it is tried.
void make_merges(const std::vector<double>& scores, TokenizerData& data);

}  // namespace foresay::core
