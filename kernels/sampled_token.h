// kernels/sampled_token.h: what sampling a row yields, and the slots in which backends keep it.
//
// Plain data without includes of ours, so that samplers can name it without seeing the ops.
#pragma once

#include <cstdint>

namespace foresay::kernels {

// Slots of one workspace. Rows of later forwards may name a slot in place of a token id (TokenRef in kernels/ops.h).
inline constexpr std::int32_t kTokenSlots = 64;

struct SampledToken {
    std::int32_t token = -1;  // -1: no candidate was left
    float margin = 0.0f;      // best minus second-best score after noise; +inf when there was no second
    bool finite = true;       // false: the row held a NaN or an infinity; only asynchronous backends look
};

}  // namespace foresay::kernels
