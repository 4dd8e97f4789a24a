// kernels/cuda/rowwise/norms.cuh: the arithmetic of a norm, by any group of threads.
//
// Order:    a thread adds its values in increasing order, then `sum` adds over the group in an order of its own: both
//           follow from the width (law 1).
#pragma once

#include "kernels/cuda/rowwise/norms.h"

namespace foresay::kernels::cuda {

// A butterfly: addition is commutative, so every lane has the same bits.
__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    return value;
}

// The sum over a CTA, the same in every thread; all threads call it. `partial`: a float per warp, of shared memory.
// Warps are added in their order.
__device__ inline float block_sum(float value, float* partial) {
    value = warp_sum(value);
    __syncthreads();  // the sum before may still be read
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += partial[warp];
    return sum;
}

// What a norm does to the values of one vector.
struct NormFactors {
    float mean = 0.0f, scale = 1.0f;

    __device__ float apply(const RowNorm& norm, float x, std::int32_t i) const {
        if (norm.weight == nullptr) return x;
        const float y = norm.centered ? (x - mean) * scale * norm.weight[i] : x * scale * norm.weight[i];
        return norm.bias != nullptr ? y + norm.bias[i] : y;
    }
};

// For a vector of n values, of which this thread has runs first, first + step, ... of kRun values each, which n
// divides; value(i) gives them, sum(s) adds over the threads that share the vector.
template <int kRun = 1, class Value, class Sum>
__device__ NormFactors norm_factors(const RowNorm& norm, std::int32_t first, std::int32_t step, std::int32_t n,
                                    const Value& value, const Sum& sum) {
    NormFactors factors;
    if (norm.weight == nullptr) return factors;
    const float count = static_cast<float>(n);
    if (norm.centered) {
        float all = 0.0f;
        for (std::int32_t i = kRun * first; i < n; i += kRun * step) {
            for (int j = 0; j < kRun; ++j) all += value(i + j);
        }
        factors.mean = sum(all) / count;
    }
    float squares = 0.0f;
    for (std::int32_t i = kRun * first; i < n; i += kRun * step) {
        for (int j = 0; j < kRun; ++j) {
            const float x = value(i + j) - factors.mean;
            squares = fmaf(x, x, squares);
        }
    }
    factors.scale = 1.0f / sqrtf(sum(squares) / count + norm.eps);
    return factors;
}

}  // namespace foresay::kernels::cuda
