// kernels/kv_code.h: the int8 codes of the KV cache (KvFormat::q8), the same in every backend.
//
// Layout:   the key or value vector x of an attention head is stored as codes round(127 x / m), m being its largest
//           magnitude, and one float, m or m / 127, as the backend prefers.
// Precision: the error is at most half a code, m / 254. Vectors with m below kLeastKvMagnitude become zeros.
#pragma once

#include <cmath>

#include "kernels/host_device.h"

namespace foresay::kernels {

inline constexpr float kLargestKvCode = 127.0f;
inline constexpr float kLeastKvMagnitude = 1e-30f;

// The factor from values to codes; 0 for a vector that becomes zeros.
FORESAY_HOST_DEVICE inline float kv_code_scale(float largest) {
    return largest < kLeastKvMagnitude ? 0.0f : kLargestKvCode / largest;
}
// -127 ... 127, rounded to nearest, ties to even.
FORESAY_HOST_DEVICE inline float kv_code(float x, float scale) { return rintf(x * scale); }

}  // namespace foresay::kernels
