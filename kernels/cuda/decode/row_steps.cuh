// kernels/cuda/decode/row_steps.cuh: a step of the decode kernel that is no matrix: the norm of a branch, which needs
// whole rows, and its sum with the residual stream.
//
// Work:     every CTA sums up all rows, because that takes less time than another meeting of the grid, and then writes
//           its own slice of each.
// Bits:     those of launch_add_rows() (kernels/cuda/rowwise/norms.cu): eight warps add a row, as its CTA does.
// Waits:    within whole layers all that is read and written is flagged words, and no CTA waits for the grid. Else the
//           grid has met before the step. The memory of the row statistics is free either way: rows are complete only
//           after the epilogue of this CTA has passed the norm of the matrix before. All CTAs arrive after the step, by
//           the multiplying warps, when they have read their words.
// Cost:     a round trip to L2 for the sums, and another one for the slice where no thread knows it yet.
#pragma once

#include "kernels/cuda/decode/activations.cuh"
#include "kernels/cuda/decode/split_k_epilogue.cuh"
#include "kernels/cuda/rowwise/norms.cuh"

namespace foresay::kernels::cuda {

// The rows of the step, in the buffers that it uses.
struct AddRowsPlaces {
    const float* y;         // [T, width]: the branch
    const float* residual;  // [T, width]
    float* out;             // [T, width]
};

// By all multiplying warps. `meet`: their barrier. Not inlined, so that it takes no registers from the matrix steps.
// `link`: as in epilogue_panels(). Every rank adds the whole row, so nothing goes to others.
template <int kWarps, bool kLinked, class Meet>
__device__ __noinline__ void add_rows_share(const GemvOp& op, const GemvStep& step, const AddRowsPlaces at, int rows,
                                            float* stats, LinkTable* link, const Meet& meet) {
    constexpr int kSummers = 8, kStride = 32 * kSummers;  // warps, and threads, of a row
    constexpr int kAtOnce = 16;                           // words of a thread in flight
    static_assert(kWarps % kSummers == 0);
    const auto thread = static_cast<int>(thread_index());
    const std::int32_t width = op.inputs;
    const bool flagged = op.x_flagged;
    Patience<kLinked> patience(link);
    // A word of the branch or the residual stream, again until it is there. What is not flagged is there.
    const auto awaited = [&](const float* from, float seen, bool is_flagged) {
        while (is_flagged && not_ready(seen) && !patience.ends()) seen = load_flagged(from);
        return seen;
    };
    // This CTA's slice: whole lines of 128 bytes. What this thread has of it does not depend on the sums, so its first
    // values are asked for now.
    const auto blocks = static_cast<std::int32_t>(gridDim.x);
    const std::int32_t each = ((width + blocks - 1) / blocks + 31) & ~31;
    const std::int32_t begin = static_cast<std::int32_t>(blockIdx.x) * each, count = min(each, width - begin);
    const auto place_of = [&](std::int32_t e) {
        const std::int32_t t = e / count;
        return static_cast<std::int64_t>(t) * width + begin + e - t * count;
    };
    float first_x = 0.0f, first_weight = 0.0f;
    if (thread < rows * count) {
        first_x = load_flagged(at.residual + place_of(thread));
        if (step.norm != nullptr) first_weight = step.norm[begin + thread % count];
    }
    if (step.norm != nullptr) {
        const int warp = thread / 32 % kSummers, first = thread % kStride;
#pragma unroll 1
        for (int t = thread / kStride; t < rows; t += kWarps / kSummers) {
            const float* const y = at.y + static_cast<std::int64_t>(t) * width;
            float squares = 0.0f;
#pragma unroll 1
            for (std::int32_t from = first; from - first < width; from += kAtOnce * kStride) {
                float value[kAtOnce];
#pragma unroll
                for (int k = 0; k < kAtOnce; ++k) {
                    value[k] = from + k * kStride < width ? load_flagged(y + from + k * kStride) : 0.0f;
                }
                while (flagged) {
                    bool missing = false;
#pragma unroll
                    for (int k = 0; k < kAtOnce; ++k) missing = missing || not_ready(value[k]);
                    const unsigned those = __ballot_sync(~0u, missing);
                    if (those == 0) break;
                    if constexpr (kLinked) {
                        if (__any_sync(~0u, patience.ends())) break;
                    }
                    // As long as nothing is there, few lanes poll.
                    const bool looks = those != ~0u || thread % 8 == 7;
#pragma unroll
                    for (int k = 0; k < kAtOnce; ++k) {
                        if (looks && not_ready(value[k])) value[k] = load_flagged(y + from + k * kStride);
                    }
                }
#pragma unroll
                for (int k = 0; k < kAtOnce; ++k) squares = fmaf(value[k], value[k], squares);
            }
            squares = warp_sum(squares);
            if (thread % 32 == 0) stats[warp * 32 + t] = squares;
        }
        meet();
    }
#pragma unroll 1
    for (std::int32_t e = thread; e < rows * count; e += 32 * kWarps) {
        const std::int32_t t = e / count;
        const std::int64_t place = place_of(e);
        float y = load_flagged(at.y + place), x = first_x, weight = first_weight;
        if (e != thread) {
            x = load_flagged(at.residual + place);
            if (step.norm != nullptr) weight = step.norm[begin + e - t * count];
        }
        y = awaited(at.y + place, y, flagged);
        x = awaited(at.residual + place, x, op.residual_flagged);
        if (step.norm != nullptr) {
            float squares = 0.0f;
            for (int warp = 0; warp < kSummers; ++warp) squares += stats[warp * 32 + t];
            y = y * (1.0f / sqrtf(squares / static_cast<float>(width) + op.eps)) * weight;
        }
        at.out[place] = op.epilogue.stream_scale * (x + op.epilogue.scale * y);
    }
}

}  // namespace foresay::kernels::cuda
