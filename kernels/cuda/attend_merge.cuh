// kernels/cuda/attend_merge.cuh: what a group leaves of a unit of attention in shared and in global memory, and how the chunks
// of a tile are added.
//
// Order:    chunks in order, in batches of kMergeBatch at absolute places. What a row does not attend to adds an exact 0.
#pragma once

#include "kernels/cuda/attend_runs.cuh"

namespace foresay::kernels::cuda::attention {

inline constexpr int kMergeBatch = 64;                       // chunks whose weights are in shared memory at a time
inline constexpr int kPeakThreads = 256;                     // threads that look at the chunks' peaks
inline constexpr int kPeakLanes = kPeakThreads / kTileRows;  // of them of one row

// What a unit leaves for the merge.
template <int kWidth>
struct Partial {
    float2 peak_and_sum[kTileRows];
    float out[kTileRows][kWidth];
};

// Places of what several units need; not with the rest, because a group fills the first while others still use the rest.
struct UnitPlaces {
    UnitPlace of[2];
    const __half* kv;  // of the layer
    float* out;
    bool last;  // this unit was the last of its (tile, head tile)
};

// Shared memory of a group. Rows are padded so that lanes meet no bank twice.
template <int kWidth>
struct GroupShared {
    static constexpr int kParts = parts_of(kWidth);
    union {
        struct {
            uint4 queries[kWidth / 16][32];  // operands of each lane
            __half weights[kTileRows][kBlock + 32];
            float peaks[kTileRows][kShares + 4];
            float sums[kTileRows][kShares + 4];
            // Of the outputs; the first part stays in registers.
            float parts[kParts > 1 ? kParts - 1 : 1][kTileRows][kParts > 1 ? kWidth + 4 : 4];
        };
        struct {
            float chunk_weights[kMergeBatch][kTileRows];
            float lanes[kPeakLanes][kTileRows];
        };
    };
};

// Meets the other threads of the group.
template <int kWarps>
__device__ inline void group_barrier() {
    asm volatile("bar.sync 1, %0;" ::"n"(32 * kWarps) : "memory");
}

// What was summed up to peak `before` is worth this much beside a peak `now`, both times log2(e).
__device__ inline float worth(float before, float now) {
    return now == minus_infinity() ? 0.0f : power_of_two(before - now);
}

// The rows of a unit from the partial results of its chunks, in order; a thread has four values of a row, or of several rows.
template <int kWidth, int kWarps>
__device__ void merge_chunks(const AttendCall& c, const UnitPlace& unit, float* to_rows, const Partial<kWidth>* chunks,
                             GroupShared<kWidth>& shared, int thread) {
    constexpr int kThreads = 32 * kWarps;
    constexpr int kPerLane = kMergeBatch / kPeakLanes;
    constexpr int kFours = (kTileRows * (kWidth / 4) + kThreads - 1) / kThreads;  // of a thread
    static_assert(kThreads >= kPeakThreads);
    const std::int32_t used = unit.tile.used(), first = unit.first_chunk, last = unit.last_chunk;
    const int row = thread % kTileRows, share = thread / kTileRows;
    const bool looks = thread < kPeakThreads, valid = looks && unit.tile.valid(row);
    float peak = minus_infinity(), sum = 0.0f;  // of `row`; of the chunks that are this thread's
    float4 out[kFours] = {};
    float peaks[kFours];
#pragma unroll
    for (float& p : peaks) p = minus_infinity();

#pragma unroll 1
    for (std::int32_t batch = first / kMergeBatch * kMergeBatch; batch <= last; batch += kMergeBatch) {
        float2 mine[kPerLane];
        float top = minus_infinity();
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
            const std::int32_t k = batch + share + kPeakLanes * i;
            mine[i] = valid && k >= first && k <= last ? __ldcg(&chunks[k].peak_and_sum[row])
                                                       : make_float2(minus_infinity(), 0.0f);
            top = fmaxf(top, mine[i].x);
        }
        group_barrier<kWarps>();  // what was there is read
        if (looks) shared.lanes[share][row] = top;
        group_barrier<kWarps>();
        const auto top_of = [&](int r, float before) {
            for (int i = 0; i < kPeakLanes; ++i) before = fmaxf(before, shared.lanes[i][r]);
            return before;
        };
        if (looks) {
            top = top_of(row, peak);
            sum *= worth(peak, top);
            peak = top;
#pragma unroll
            for (int i = 0; i < kPerLane; ++i) {
                const float weight = worth(mine[i].x, top);
                shared.chunk_weights[share + kPeakLanes * i][row] = weight;
                sum = fmaf(mine[i].y, weight, sum);
            }
        }
        group_barrier<kWarps>();
        const std::int32_t begin = max(first, batch), end = min(last + 1, batch + kMergeBatch);
#pragma unroll
        for (int f = 0; f < kFours; ++f) {
            const int i = thread + kThreads * f, r = i / (kWidth / 4), d = 4 * (i % (kWidth / 4));
            if (r >= used) break;
            const float now = top_of(r, peaks[f]), old = worth(peaks[f], now);
            peaks[f] = now;
            float4& to = out[f];
            to = make_float4(to.x * old, to.y * old, to.z * old, to.w * old);
#pragma unroll 8
            for (std::int32_t k = begin; k < end; ++k) {
                const float4 part = __ldcg(reinterpret_cast<const float4*>(&chunks[k].out[r][d]));
                const float weight = shared.chunk_weights[k - batch][r];
                to.x = fmaf(part.x, weight, to.x);
                to.y = fmaf(part.y, weight, to.y);
                to.z = fmaf(part.z, weight, to.z);
                to.w = fmaf(part.w, weight, to.w);
            }
        }
    }
    group_barrier<kWarps>();
    if (looks) shared.lanes[share][row] = sum;
    group_barrier<kWarps>();
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
        const int i = thread + kThreads * f, r = i / (kWidth / 4), d = 4 * (i % (kWidth / 4));
        if (r >= used || !unit.tile.valid(r) || d >= c.head_dim) continue;
        float all = 0.0f;
        for (int lane = 0; lane < kPeakLanes; ++lane) all += shared.lanes[lane][r];
        *reinterpret_cast<float4*>(to_rows + unit.tile.values(c, r) + d) =
            make_float4(out[f].x / all, out[f].y / all, out[f].z / all, out[f].w / all);
    }
}

}  // namespace foresay::kernels::cuda::attention
