// kernels/cuda/rowwise/token_of.cuh: the token of a row.
#pragma once

#include "kernels/cuda/memory/batch_state.h"
#include "kernels/sampled_token.h"

namespace foresay::kernels::cuda {

// A token id, or ~slot: then the token comes from its slot, where an earlier sampling kernel has left it. Clamped,
// because a slot has -1 if no logit of its row was a candidate, and -1 would read outside a table of `vocab` rows.
__device__ inline std::int64_t token_of(const RowState& row, const SampledToken* slots, std::int64_t vocab) {
    const std::int64_t id = row.token >= 0 ? row.token : slots[~row.token].token;
    return id < 0 ? 0 : id < vocab ? id : vocab - 1;
}

}  // namespace foresay::kernels::cuda
