// kernels/cuda/decode/row_steps.cuh: a step of the decode kernel that is no matrix: the norm of a branch, which needs
// whole rows, and its sum with the residual stream.
//
// Work:     every CTA sums up all rows, because that takes less time than another meeting of the grid, and then writes
//           its own slice of each.
// Bits:     those of launch_add_rows() (kernels/cuda/rowwise/norms.cu): eight warps add a row, as its CTA does.
// Waits:    the grid has met before the step, so all sums are there, and the memory of the row statistics is free. All
//           CTAs arrive after it, by the multiplying warps.
// Cost:     a round trip to L2 for the sums, another one for the slice, and a meeting of the grid: about 3
// microseconds.
#pragma once

#include "kernels/cuda/decode/activations.cuh"
#include "kernels/cuda/decode/split_k_epilogue.cuh"
#include "kernels/cuda/rowwise/norms.cuh"

namespace foresay::kernels::cuda {

// By all multiplying warps. `meet`: their barrier. Not inlined, so that it takes no registers from the matrix steps.
template <int kWarps, class Meet>
__device__ __noinline__ void add_rows_share(const GemvOp& op, const GemvStep& step, int rows, float* stats,
                                            const Meet& meet) {
    constexpr int kSummers = 8;  // warps of a row
    static_assert(kWarps % kSummers == 0);
    const auto thread = static_cast<int>(thread_index());
    const std::int32_t width = op.inputs;
    if (step.norm != nullptr) {
        const int warp = thread / 32 % kSummers, first = thread % (32 * kSummers);
#pragma unroll 1
        for (int t = thread / (32 * kSummers); t < rows; t += kWarps / kSummers) {
            const float* const y = op.x + static_cast<std::int64_t>(t) * width;
            float squares = 0.0f;
#pragma unroll 4
            for (std::int32_t i = first; i < width; i += 32 * kSummers) {
                const float value = __ldcg(y + i);
                squares = fmaf(value, value, squares);
            }
            squares = warp_sum(squares);
            if (thread % 32 == 0) stats[warp * 32 + t] = squares;
        }
        meet();
    }
    const auto blocks = static_cast<std::int32_t>(gridDim.x);
    const std::int32_t each = (width + blocks - 1) / blocks, begin = static_cast<std::int32_t>(blockIdx.x) * each;
    const std::int32_t count = min(each, width - begin);
    if (count <= 0) return;
#pragma unroll 1
    for (std::int32_t e = thread; e < rows * count; e += 32 * kWarps) {
        const std::int32_t t = e / count, i = begin + e - t * count;
        const std::int64_t at = static_cast<std::int64_t>(t) * width + i;
        const float x = __ldcg(op.epilogue.out + at);
        float y = __ldcg(op.x + at);
        if (step.norm != nullptr) {
            float squares = 0.0f;
            for (int warp = 0; warp < kSummers; ++warp) squares += stats[warp * 32 + t];
            y = y * (1.0f / sqrtf(squares / static_cast<float>(width) + op.eps)) * step.norm[i];
        }
        op.epilogue.out[at] = op.epilogue.stream_scale * (x + op.epilogue.scale * y);
    }
}

}  // namespace foresay::kernels::cuda
