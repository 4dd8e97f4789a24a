// kernels/cuda/attention/merge_chunks.cuh: what the groups of a unit share, and how the chunks of a tile become one row
// of output.
//
// Partials: a unit of a tile with several chunks leaves, for each of its rows, peak, sum and unscaled output (Partial)
//           in AttendCall::partial, as flagged words (kernels/cuda/decode/flagged_words.cuh). Layout: [tile][head
//           tile][chunk] Partial.
// Merge:    rows are dealt out to groups like units, from the other end of the grid. Share k % 8 of a row's chunks is
//           one warp's: it polls its chunks until they are there, adds them in order, and resets their words. Then all
//           threads add the eight shares in order.
// Waits:    a group merges only after its own units are done. Units never wait for merges, so the polling ends.
// Order:    the shares follow from the absolute number of the chunk, so a row's sum has one order. What a row does not
//           attend to adds an exact 0.
// Reset:    the only reader resets, and the next launch writes the words only after this one is done (attention of the
//           next layer waits for its projections, which wait for this output).
#pragma once

#include "kernels/cuda/attention/kv_fragments.cuh"
#include "kernels/cuda/decode/flagged_words.cuh"
#include "kernels/cuda/device/async.cuh"

namespace foresay::kernels::cuda::attention {

inline constexpr int kMergeShares = 8;
static_assert(kNotReady == 0x01010101u * kNotReadyByte);

// Where outputs go: rows of the heads of the call, on this device. Kernels may have another one (kernels/cuda/decode).
struct OwnOutput {
    static __device__ std::int64_t place(const AttendCall& c, const Tile& tile, std::int32_t r) {
        return tile.values(c, r);
    }
    static __device__ void store(float* at, float value) { *at = value; }
};

// What a unit leaves for the merge.
template <int kWidth>
struct Partial {
    float2 peak_and_sum[kTileRows];
    float out[kTileRows][kWidth];
};

// Number n of units (rank: which chunk, counted from a tile's newest) or of merges (rank: which row), tiles fastest.
struct UnitIndex {
    std::int32_t tile, head_tile, rank;
    __device__ UnitIndex(const AttendCall& c, std::int32_t n) {
        const std::int32_t rest = quotient_by(n, c.tiles_inverse);
        rank = quotient_by(rest, c.head_tiles_inverse);
        tile = n - rest * c.tiles;
        head_tile = rest - rank * c.head_tiles;
    }
};

// The partials of a tile and head tile, by chunk.
template <int kWidth>
__device__ Partial<kWidth>* chunks_of(const AttendCall& c, const UnitIndex& at) {
    return reinterpret_cast<Partial<kWidth>*>(c.partial) +
           (static_cast<std::int64_t>(at.tile) * c.head_tiles + at.head_tile) * c.chunks;
}

// What several units need. Apart from GroupShared, because the last warp fills the next descriptor while the other
// warps still use that memory.
struct UnitDescriptors {
    UnitDescriptor of[2];
    AttendLayer layer;
    std::uint32_t call;  // shared-memory address of the AttendCall; unused by kernels that have it as a parameter
};

// Shared memory of a group. The rows of `weights` and `peaks` are padded so that lanes of different rows meet few banks
// twice. The merge overlays the rest.
template <int kWidth, KvFormat kFormat>
struct GroupShared {
    union {
        struct {
            uint4 queries[kWidth / 16][32];  // operands of each lane
            __half weights[kTileRows][(1 << attend_block_shift(kFormat, kWidth)) + 32];
            float peaks[kTileRows][group_warps(kWidth) + 4];  // by warps
            float sums[kTileRows][group_warps(kWidth) + 4];
        };
        struct {
            float2 merged_peak_and_sum[kMergeShares];
            float merged[kMergeShares][kWidth];
        };
    };
};

// A thread's place among the groups of a launch, `kWarps` warps each. Constructed where it is used, so that it takes no
// registers in between.
template <int kWarps>
struct GroupThread {
    std::int32_t within;  // which group of the block
    int warp, lane;       // of the group
    __device__ GroupThread() {
        const std::uint32_t thread = thread_index();
        within = static_cast<std::int32_t>(thread / (32 * kWarps));
        warp = static_cast<int>(thread / 32 % kWarps);
        lane = static_cast<int>(thread % 32);
    }
    static constexpr __device__ int warps() { return kWarps; }
    __device__ int quad() const { return lane / 4; }
    __device__ int place() const { return lane % 4; }
    __device__ int thread() const { return 32 * warp + lane; }
    // The group's number for units, and for merges. Neighbours are on different multiprocessors. Units are dealt out
    // from the last CTA on, because the first ones may have had more panels before, and merges from the first.
    __device__ std::int32_t from_last() const {
        return static_cast<std::int32_t>((within + 1) * gridDim.x - 1 - blockIdx.x);
    }
    __device__ std::int32_t from_first() const { return static_cast<std::int32_t>(within * gridDim.x + blockIdx.x); }
    // Meets the others of the group.
    __device__ void meet() const {
#ifdef FORESAY_RACECHECK
        // A number that the tool can read.
        if (within == 0) {
            named_barrier<1, 32 * kWarps>();
        } else {
            named_barrier<2, 32 * kWarps>();
        }
#else
        asm volatile("bar.sync %0, %1;" ::"r"(1 + within), "n"(32 * kWarps) : "memory");
#endif
    }
};

// The factor of what was summed up with peak `before`, beside a peak `now`. Both are times log2(e).
__device__ inline float worth(float before, float now) {
    return now == minus_infinity() ? 0.0f : power_of_two(before - now);
}

// Row r of a tile, whose first value goes to `to`, from chunks first .. last. `sink`: of its head; null: none.
template <class Output, int kWidth, int kWarps, class Shared>
__device__ __forceinline__ void merge_row(Partial<kWidth>* chunks, std::int32_t first, std::int32_t last, int r,
                                          float* to, const float* sink, std::int32_t head_dim, Shared& shared,
                                          const GroupThread<kWarps>& group) {
    const int warp = group.warp, lane = group.lane;
    constexpr int kFours = (kWidth + 127) / 128, kAtOnce = kFours == 1 ? 4 : 2;
    const auto place = [&](int f) { return 4 * (lane + 32 * f); };  // values of this lane, if there are any
    // One share per warp: kAtOnce chunks in flight, loaded again until all their words are there.
#pragma unroll 1
    for (int share = warp; share < kMergeShares; share += kWarps) {
        float peak = minus_infinity(), sum = 0.0f;
        float4 out[kFours] = {};
#pragma unroll 1
        for (std::int32_t k = first + ((share - first) & (kMergeShares - 1)); k <= last; k += kMergeShares * kAtOnce) {
            float2 weight[kAtOnce];  // peak and sum
            float4 part[kAtOnce][kFours];
            bool missing;
            do {
                missing = false;
#pragma unroll
                for (int i = 0; i < kAtOnce; ++i) {
                    weight[i] = {minus_infinity(), 0.0f};
                    const bool exists = k + kMergeShares * i <= last;
                    const Partial<kWidth>& chunk = chunks[k + kMergeShares * i];
                    if (exists) weight[i] = load_flagged2(&chunk.peak_and_sum[r]);
#pragma unroll
                    for (int f = 0; f < kFours; ++f) {
                        part[i][f] = {};
                        if (exists && place(f) < kWidth) part[i][f] = load_flagged4(&chunk.out[r][place(f)]);
                    }
                }
#pragma unroll
                for (int i = 0; i < kAtOnce; ++i) {
                    missing = missing || not_ready(weight[i]);
#pragma unroll
                    for (int f = 0; f < kFours; ++f) missing = missing || not_ready(part[i][f]);
                }
            } while (__any_sync(~0u, missing));
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                // This is the only reader, so it resets the words as soon as it has them.
                if (k + kMergeShares * i > last) continue;
                Partial<kWidth>& chunk = chunks[k + kMergeShares * i];
                if (lane == 0) reset_flagged2(&chunk.peak_and_sum[r]);
#pragma unroll
                for (int f = 0; f < kFours; ++f) {
                    if (place(f) < kWidth) reset_flagged4(&chunk.out[r][place(f)]);
                }
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                // Adds the chunk: what has the lower peak is scaled down.
                const float top = fmaxf(peak, weight[i].x), old = worth(peak, top), now = worth(weight[i].x, top);
                peak = top;
                sum = fmaf(weight[i].y, now, sum * old);
#pragma unroll
                for (int f = 0; f < kFours; ++f) {
                    const float4 p = part[i][f];
                    float4& o = out[f];
                    o = {fmaf(p.x, now, o.x * old), fmaf(p.y, now, o.y * old), fmaf(p.z, now, o.z * old),
                         fmaf(p.w, now, o.w * old)};
                }
            }
        }
        if (lane == 0) shared.merged_peak_and_sum[share] = {peak, sum};
#pragma unroll
        for (int f = 0; f < kFours; ++f) {
            if (place(f) < kWidth) *reinterpret_cast<float4*>(&shared.merged[share][place(f)]) = out[f];
        }
    }
    group.meet();
    // The shares in order, one value of the row per thread.
    for (int d = group.thread(); d < kWidth; d += 32 * kWarps) {
        float top = minus_infinity(), sum = 0.0f, out = 0.0f;
#pragma unroll
        for (int share = 0; share < kMergeShares; ++share) top = fmaxf(top, shared.merged_peak_and_sum[share].x);
#pragma unroll
        for (int share = 0; share < kMergeShares; ++share) {
            const float2 weight = shared.merged_peak_and_sum[share];
            const float now = worth(weight.x, top);
            sum = fmaf(weight.y, now, sum);
            out = fmaf(shared.merged[share][d], now, out);
        }
        if (sink != nullptr) sum += sink_weight(*sink, top);
        if (d < head_dim) Output::store(to + d, out * reciprocal(sum));
    }
    group.meet();  // the memory may be overwritten from here on
}

// This group's share of the rows to merge.
template <class Output, int kWidth, int kWarps, class Shared>
__device__ __forceinline__ void merge_rows(const AttendCall& c, float* to, const float* sinks, Shared& shared,
                                           const GroupThread<kWarps>& group, std::int32_t groups) {
#pragma unroll 1
    for (std::int32_t m = group.from_first(); m < c.merges(); m += groups) {
        const UnitIndex at(c, m);
        const std::int32_t r = at.rank;
        const Tile tile(c, at.tile, at.head_tile);
        if (!tile.valid(r)) continue;
        const std::int32_t first = chunk_of(tile.least(c), c.block_shift),
                           last = chunk_of(tile.state.highest, c.block_shift);
        if (first == last) continue;
        merge_row<Output, kWidth, kWarps>(chunks_of<kWidth>(c, at), first, last, r, to + Output::place(c, tile, r),
                                          sinks != nullptr ? sinks + tile.head(r) : nullptr, c.head_dim, shared, group);
    }
}

}  // namespace foresay::kernels::cuda::attention
