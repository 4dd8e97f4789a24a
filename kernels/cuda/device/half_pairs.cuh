// kernels/cuda/device/half_pairs.cuh: pairs of 16-bit numbers as the 32-bit words that matrix instructions and memory
// hold them in.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace foresay::kernels::cuda {

__device__ inline __half2 as_halves(std::uint32_t bits) { return *reinterpret_cast<const __half2*>(&bits); }
// Pair: __half2 or __nv_bfloat162.
template <class Pair>
__device__ inline std::uint32_t as_bits(Pair pair) {
    static_assert(sizeof(Pair) == sizeof(std::uint32_t));
    return *reinterpret_cast<const std::uint32_t*>(&pair);
}
__device__ inline float2 as_floats(std::uint32_t halves) { return __half22float2(as_halves(halves)); }

}  // namespace foresay::kernels::cuda
