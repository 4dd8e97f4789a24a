// kernels/kv/low_bits.h: codes of the KV cache with fewer than 8 bits, the same in every backend.
//
// Layout:   the key or value vector x of an attention head is rotated, y = R x, and stored as codes of b bits and one
//           float, the extreme e: the y[d] of the largest magnitude, with its sign. With h = 2^(b-1):
//               code = round(y * (-h / e)) + h, at most 2 h - 1        value = (code - h) * (e / -h)
//           So the extreme has code 0 and all codes are in use; what has the opposite sign and nearly the extreme's
//           magnitude is stored a step too small.
// Rotation: a Hadamard matrix over sqrt(n) for each block of n neighbouring values, n being the largest power of two
//           that divides the head's width (rotation_block). It is symmetric and its own inverse. It spreads what single
//           values of a head have, which would otherwise set the step for all, over the block.
//           In float32: for stride 1, 2, 4, ... n / 2 pairs (a, b) of values that far apart become (a + b, a - b), then
//           every value is multiplied by 1 / sqrt(n), rounded to float32. Each value has one order of additions, so
//           host and device agree. Queries are rotated likewise: q . k = Rq . Rk. The sum of weighted values is rotated
//           back.
// Precision: the error of y is at most half a step, |e| / 2 h, and a whole step at the far end. Vectors with |e| below
//           kLeastKvMagnitude become zeros.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/kv_code.h"

namespace foresay::kernels {

// Half of the number of codes, which is the code of 0.
FORESAY_HOST_DEVICE constexpr std::int32_t kv_code_zero(int bits) { return 1 << (bits - 1); }

// The extreme of a vector, from its largest and its least value.
FORESAY_HOST_DEVICE inline float kv_extreme(float largest, float least) { return largest > -least ? largest : least; }

// The factor from values to codes; 0 for a vector that becomes zeros.
FORESAY_HOST_DEVICE inline float kv_low_scale(float extreme, int bits) {
    return fabsf(extreme) < kLeastKvMagnitude ? 0.0f : -static_cast<float>(kv_code_zero(bits)) / extreme;
}
// 0 ... 2^bits - 1.
FORESAY_HOST_DEVICE inline std::int32_t kv_low_code(float y, float scale, int bits) {
    const auto zero = static_cast<float>(kv_code_zero(bits));
    return static_cast<std::int32_t>(fminf(fmaxf(rintf(y * scale), -zero), zero - 1.0f) + zero);
}

// Values that are rotated together.
FORESAY_HOST_DEVICE constexpr std::int32_t rotation_block(std::int32_t head_dim) { return head_dim & -head_dim; }

// Rotates a head in place, as defined above.
inline void rotate_for_cache(float* x, std::int32_t head_dim) {
    const std::int32_t n = rotation_block(head_dim);
    for (std::int32_t stride = 1; stride < n; stride *= 2) {
        for (std::int32_t i = 0; i < head_dim; ++i) {
            if ((i & stride) != 0) continue;
            const float a = x[i], b = x[i + stride];
            x[i] = a + b;
            x[i + stride] = a - b;
        }
    }
    const float factor = 1.0f / std::sqrt(static_cast<float>(n));
    for (std::int32_t i = 0; i < head_dim; ++i) x[i] *= factor;
}

}  // namespace foresay::kernels
