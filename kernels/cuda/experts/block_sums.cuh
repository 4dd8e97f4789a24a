// kernels/cuda/experts/block_sums.cuh: sums over a thread block in a fixed order, and norms of rows by them.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/experts/experts.h"

namespace foresay::kernels::cuda {

// A butterfly: addition is commutative, so every lane has the same bits.
__device__ inline float warp_sum(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}

// The sum over a CTA, the same in every thread; warps are added in their order. `parts`: 32 floats of shared memory.
// May be called again at once: it ends with a barrier.
__device__ inline float block_sum(float value, float* parts) {
    value = warp_sum(value);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0.0f;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += parts[warp];
    __syncthreads();
    return sum;
}

// Mean (0 for an RMS norm) and mean square around it of the row that `value(i)` gives, by all threads of a CTA.
template <class Value>
__device__ inline float2 row_moments(bool layer, int width, float* parts, const Value& value) {
    const auto step = static_cast<int>(blockDim.x);
    float mean = 0.0f;
    if (layer) {
        float sum = 0.0f;
        for (int i = static_cast<int>(threadIdx.x); i < width; i += step) sum += value(i);
        mean = block_sum(sum, parts) / static_cast<float>(width);
    }
    float squares = 0.0f;
    for (int i = static_cast<int>(threadIdx.x); i < width; i += step) {
        const float deviation = value(i) - mean;
        squares = fmaf(deviation, deviation, squares);
    }
    return {mean, block_sum(squares, parts) / static_cast<float>(width)};
}

// Value i of a normed row. `stats`: mean and 1 / deviation.
__device__ inline float normed_value(const NormArgs& norm, float2 stats, float value, int i) {
    if (norm.weight == nullptr) return value;
    const float y = (value - stats.x) * stats.y * norm.weight[i];
    return norm.bias != nullptr ? y + norm.bias[i] : y;
}

}  // namespace foresay::kernels::cuda
