// tests/cuda_attention/emulated/kernels/cuda/attention/instructions.cuh: the instructions of attention, by emulation.h.
#pragma once

#include <cmath>

#include "tests/cuda_linear/emulated/kernels/cuda/device/mma.cuh"

namespace foresay::kernels::cuda::attention {

inline void multiply_add(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                         std::uint32_t b0, std::uint32_t b1) {
    const float begin[4] = {c[0], c[1], c[2], c[3]};
    mma(c, a0, a1, a2, a3, b0, b1, begin);
}
inline float power_of_two(float x) { return exp2f(x); }
inline float reciprocal(float x) { return 1.0f / x; }

}  // namespace foresay::kernels::cuda::attention
