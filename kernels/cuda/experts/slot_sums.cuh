// kernels/cuda/experts/slot_sums.cuh: the sum over the slots of a row, and where it goes. By whichever kernel has the
// last of them: the arithmetic is the same.
#pragma once

#include <cuda_runtime.h>

#include "kernels/cuda/experts/experts.h"

namespace foresay::kernels::cuda {

// Value i of the sum of row t, by ascending expert.
__device__ inline float sum_of_slots(const CombineCall& c, std::int64_t t, int i) {
    const float* const weight = c.with.weight + t * c.used;
    const float* const out = c.with.out + t * c.used * c.width + i;
    float y = 0.0f;
#pragma unroll 8
    for (int k = 0; k < c.used; ++k) {
        y = fmaf(__ldcg(weight + k), __ldcg(out + static_cast<std::int64_t>(k) * c.width), y);
    }
    return y;
}

__device__ inline void add_to_row(const CombineCall& c, std::int64_t t, int i, float y) {
    if (c.keep_branch) {
        c.with.branch[t * c.width + i] = y;
        return;
    }
    float* const x = c.x + t * c.width + i;
    *x = c.stream_scale * fmaf(c.scale, y, __ldcg(x));
}

}  // namespace foresay::kernels::cuda
