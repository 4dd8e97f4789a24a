// kernels/kv_code.h: the int8 codes of the KV cache (KvFormat::q8), the same in every backend.
//
// Layout:   a head's key or value vector x, with m its largest magnitude, becomes round(127 x / m) and m, or m / 127.
// Precision: half a code, m / 254. Vectors whose m is below kLeastKvMagnitude are kept as zeros.
#pragma once

#include <cmath>

#include "kernels/host_device.h"

namespace foresay::kernels {

inline constexpr float kLargestKvCode = 127.0f;
inline constexpr float kLeastKvMagnitude = 1e-30f;

// The factor that turns values into codes.
FORESAY_HOST_DEVICE inline float kv_code_scale(float largest) {
    return largest < kLeastKvMagnitude ? 0.0f : kLargestKvCode / largest;
}
// -127 ... 127, rounded to nearest, ties to even.
FORESAY_HOST_DEVICE inline float kv_code(float x, float scale) { return rintf(x * scale); }

}  // namespace foresay::kernels
