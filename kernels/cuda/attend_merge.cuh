// kernels/cuda/attend_merge.cuh: partial results of attention, of the warps of a unit and of the chunks of a tile, and how they
// are added.
//
// Order:    (warp 0 + warp 2) + (warp 1 + warp 3); chunks in order, in batches of kMergeBatch at absolute places. What a row
//           does not attend to adds an exact 0.
#pragma once

#include "kernels/cuda/attend_tile.cuh"

namespace foresay::kernels::cuda::attention {

inline constexpr int kUnitWarps = 4;
inline constexpr int kUnitThreads = 32 * kUnitWarps;
inline constexpr int kMergeBatch = 64;  // chunks whose weights are in shared memory at a time
inline constexpr int kSlice = 64;       // values of a head that warps add up at a time

// What a unit leaves for the merge.
template <int kWidth>
struct Partial {
    float2 peak_and_sum[kTileRows];
    float out[kTileRows][kWidth];
};

// Shared memory of a group.
template <int kWidth>
struct UnitShared {
    union {
        uint4 q[kWidth / 16][32];                                   // operands: of each lane
        float sums[2][8][(kWidth < kSlice ? kWidth : kSlice) + 4];  // of warps; 4 to keep lanes in banks of their own
        float weights[kMergeBatch][kTileRows];                      // of chunks
    };
    union {
        float2 warps[kUnitWarps][kTileRows];  // peak and sum
        float lanes[kUnitThreads / kTileRows][kTileRows];
    };
    // What is needed again at the end, and takes no registers until then.
    Tile tile;
    Partial<kWidth>* chunks;  // of the (tile, head tile); those of other chunks may not be there yet
    std::int32_t* arrived;
    std::int32_t chunk, first_chunk, last_chunk;
    std::int32_t positions[kTileRows];  // of the operand rows; -1: empty
    bool last;
};

// Meets the other threads of the group.
__device__ inline void group_barrier(int id) {
    asm volatile("bar.sync %0, %1;" ::"r"(id), "n"(kUnitThreads) : "memory");
}

// Asked for again wherever it is needed: so it takes no register, nor does what follows from it, while loops run.
__device__ inline int group_thread() {
    int thread;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(thread));
    return thread % kUnitThreads;
}

// The state of an online softmax of a warp, of its operand rows 8 n + quad.
template <int kWidth, int kColumns>
struct Softmax {
    float peak[kColumns];  // of the scores so far, times log2(e)
    float sum[kColumns];   // this lane's share
    // Of operand rows 8 n + 2 place + {0, 1}: value 16 m + quad, then 16 m + quad + 8.
    float out[kColumns][kWidth / 16][4];

    __device__ Softmax() {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            peak[n] = minus_infinity();
            sum[n] = 0.0f;
#pragma unroll
            for (int m = 0; m < kWidth / 16; ++m) {
                for (float& value : out[n][m]) value = 0.0f;
            }
        }
    }
};

// Adds what the warps of a group have, and calls put(r, d, peak, sum, four values of the output from d on) for each valid
// operand row r, d in fours.
template <int kWidth, int kColumns, bool kCoded, class Put>
__device__ void add_warps(Softmax<kWidth, kColumns>& state, UnitShared<kWidth>& shared, int thread, int barrier_id,
                          const Put& put) {
    constexpr int kWide = kWidth < kSlice ? kWidth : kSlice;
    const int warp = thread / 32, lane = thread % 32, quad = lane / 4, place = lane % 4;
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
        if (place == 0) shared.warps[warp][8 * n + quad] = {state.peak[n], state.sum[n]};
    }
    group_barrier(barrier_id);  // from here on nobody reads queries
    const auto top_of = [&](int r) {
        float top = shared.warps[0][r].x;
        for (int w = 1; w < kUnitWarps; ++w) top = fmaxf(top, shared.warps[w][r].x);
        return top;
    };
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
        float weight[2];
        for (int e = 0; e < 2; ++e) {
            const int r = 8 * n + 2 * place + e;
            const float top = top_of(r);
            weight[e] = power_of_two(shared.warps[warp][r].x - (top == minus_infinity() ? 0.0f : top)) *
                        (kCoded ? 1.0f / kLargestCode : 1.0f);
        }
#pragma unroll
        for (int m = 0; m < kWidth / 16; ++m) {
            for (int i = 0; i < 4; ++i) state.out[n][m][i] *= weight[i % 2];
        }
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
#pragma unroll
        for (int slice = 0; slice < kWidth / kWide; ++slice) {
            const auto each = [&](const auto& body) {
#pragma unroll
                for (int m = 0; m < kWide / 16; ++m) {
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        body(shared.sums[warp % 2][2 * place + i % 2][16 * m + 8 * (i / 2) + quad],
                             state.out[n][slice * (kWide / 16) + m][i]);
                    }
                }
            };
            if (n + slice > 0) group_barrier(barrier_id);
            if (warp < 2) each([](float& sum, float value) { sum = value; });
            group_barrier(barrier_id);
            if (warp >= 2) each([](float& sum, float value) { sum += value; });
            group_barrier(barrier_id);
            const int i = thread / (kWide / 4), r = 8 * n + i, d = 4 * (thread % (kWide / 4));
            if (i >= 8 || !shared.tile.valid(r)) continue;
            const float top = top_of(r), zero = top == minus_infinity() ? 0.0f : top;
            float sum = 0.0f;
            for (int w = 0; w < kUnitWarps; ++w) {
                sum = fmaf(shared.warps[w][r].y, power_of_two(shared.warps[w][r].x - zero), sum);
            }
            const float4 one = *reinterpret_cast<const float4*>(&shared.sums[0][i][d]);
            const float4 two = *reinterpret_cast<const float4*>(&shared.sums[1][i][d]);
            put(r, slice * kWide + d, top, sum,
                make_float4(one.x + two.x, one.y + two.y, one.z + two.z, one.w + two.w));
        }
    }
}

__device__ inline void put_row(const AttendCall& c, const Tile& tile, int r, int d, float sum, float4 out) {
    if (d >= c.head_dim) return;
    *reinterpret_cast<float4*>(c.out + tile.values(c, r) + d) =
        make_float4(out.x / sum, out.y / sum, out.z / sum, out.w / sum);
}

// The rows of a unit from the partial results of its chunks, in order; each thread has four values of a row, or of several
// rows.
template <int kWidth>
__device__ void merge_chunks(const AttendCall& c, UnitShared<kWidth>& shared, int thread, int barrier_id) {
    constexpr int kLanes = kUnitThreads / kTileRows;  // threads that look at the peaks of one row
    constexpr int kPerLane = kMergeBatch / kLanes;
    constexpr int kFours = kTileRows * (kWidth / 4) / kUnitThreads;  // of a thread
    const Tile tile = shared.tile;
    const Partial<kWidth>* chunks = shared.chunks;
    const std::int32_t used = tile.used(), first = shared.first_chunk, last = shared.last_chunk;
    const int row = thread % kTileRows, share = thread / kTileRows;
    const bool valid = tile.valid(row);
    float peak = minus_infinity(), sum = 0.0f;  // of `row`; of the chunks that are this thread's
    float4 out[kFours] = {};
    float peaks[kFours];
#pragma unroll
    for (float& p : peaks) p = minus_infinity();
    // What was summed so far is worth this much beside a new peak.
    const auto worth = [](float before, float now) {
        return now == minus_infinity() ? 0.0f : power_of_two(before - now);
    };

#pragma unroll 1
    for (std::int32_t batch = first / kMergeBatch * kMergeBatch; batch <= last; batch += kMergeBatch) {
        float2 mine[kPerLane];
        float top = minus_infinity();
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
            const std::int32_t k = batch + share + kLanes * i;
            mine[i] = valid && k >= first && k <= last ? __ldcg(&chunks[k].peak_and_sum[row])
                                                       : make_float2(minus_infinity(), 0.0f);
            top = fmaxf(top, mine[i].x);
        }
        group_barrier(barrier_id);  // the last batch's weights, and what add_warps() left, are read
        shared.lanes[share][row] = top;
        group_barrier(barrier_id);
        const auto top_of = [&](int r, float before) {
            for (int i = 0; i < kLanes; ++i) before = fmaxf(before, shared.lanes[i][r]);
            return before;
        };
        top = top_of(row, peak);
        sum *= worth(peak, top);
        peak = top;
#pragma unroll
        for (int i = 0; i < kPerLane; ++i) {
            const float weight = worth(mine[i].x, top);
            shared.weights[share + kLanes * i][row] = weight;
            sum = fmaf(mine[i].y, weight, sum);
        }
        group_barrier(barrier_id);
        const std::int32_t begin = max(first, batch), end = min(last + 1, batch + kMergeBatch);
#pragma unroll
        for (int f = 0; f < kFours; ++f) {
            const int i = thread + kUnitThreads * f, r = i / (kWidth / 4), d = 4 * (i % (kWidth / 4));
            if (r >= used) break;
            const float now = top_of(r, peaks[f]), old = worth(peaks[f], now);
            peaks[f] = now;
            float4& to = out[f];
            to = make_float4(to.x * old, to.y * old, to.z * old, to.w * old);
#pragma unroll 8
            for (std::int32_t k = begin; k < end; ++k) {
                const float4 part = __ldcg(reinterpret_cast<const float4*>(&chunks[k].out[r][d]));
                const float weight = shared.weights[k - batch][r];
                to.x = fmaf(part.x, weight, to.x);
                to.y = fmaf(part.y, weight, to.y);
                to.z = fmaf(part.z, weight, to.z);
                to.w = fmaf(part.w, weight, to.w);
            }
        }
    }
    group_barrier(barrier_id);
    shared.lanes[share][row] = sum;
    group_barrier(barrier_id);
#pragma unroll
    for (int f = 0; f < kFours; ++f) {
        const int i = thread + kUnitThreads * f, r = i / (kWidth / 4), d = 4 * (i % (kWidth / 4));
        if (r >= used || !tile.valid(r)) continue;
        float all = 0.0f;
        for (int lane = 0; lane < kLanes; ++lane) all += shared.lanes[lane][r];
        put_row(c, tile, r, d, all, out[f]);
    }
}

}  // namespace foresay::kernels::cuda::attention
