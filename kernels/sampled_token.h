// kernels/sampled_token.h: the result of sampling a row, and the number of slots in which backends keep results.
//
// Includes no other header of the project, so that samplers can use it without the ops.
#pragma once

#include <cstdint>

namespace foresay::kernels {

// Slots of one workspace. Rows of later forwards may name a slot in place of a token id (TokenRef in kernels/ops.h).
inline constexpr std::int32_t kTokenSlots = 64;

struct SampledToken {
    std::int32_t token = -1;  // -1: no candidate was left
    float margin = 0.0f;      // best minus second-best score after noise; +inf when there was no second
    bool finite = true;       // false: the row held a NaN or an infinity; only asynchronous backends check
};

}  // namespace foresay::kernels
