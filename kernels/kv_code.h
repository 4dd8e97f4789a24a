// kernels/kv_code.h: the codes of keys and values that are kept in 8 bits (KvFormat::q8), the same on host and device.
//
// Layout:   a head's key or value x, with m its largest magnitude, is kept as m and round(127 x / m).
// Precision: half a code, m / 254. Vectors whose m is below kLeastKvMagnitude are kept as zeros.
#pragma once

#include <cmath>

#include "kernels/host_device.h"

namespace foresay::kernels {

inline constexpr float kLargestKvCode = 127.0f;
inline constexpr float kLeastKvMagnitude = 1e-30f;

// What values are multiplied with to become codes.
FORESAY_HOST_DEVICE inline float kv_code_scale(float largest) {
    return largest < kLeastKvMagnitude ? 0.0f : kLargestKvCode / largest;
}
// -127 ... 127; halves go to the even one.
FORESAY_HOST_DEVICE inline float kv_code(float x, float scale) { return rintf(x * scale); }

}  // namespace foresay::kernels
