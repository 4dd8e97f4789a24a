// kernels/cuda/attend.cuh: attention of decode rows, by groups of four warps: a device function, so that a kernel which does
// more than attention can call it.
//
// Unit:     (tile, head tile, chunk): up to 16 (row, query head) pairs against the keys of one chunk (attend.h). A launch has
//           tiles * c.head_tiles * chunks units; those of chunks that a tile has no position in return at once. Units may
//           run in any order on any groups. The one of a (tile, head tile) that ends last merges its chunks into c.out.
// Layout:   the four warps take strips of a chunk by turns. Scores are Q . K^T and outputs V^T . P^T, so that the operand
//           rows are columns of the outputs, one or two products wide: half the registers where a tile has no more than 8.
//           Q lies in shared memory, as operands; K and V go from global memory into registers, a ring of pairs deep.
// Order:    within a warp strips in order; (warp 0 + warp 2) + (warp 1 + warp 3); chunks in order, in batches of
//           kMergeBatch at absolute places. All sums of a row depend on its own position alone; the neighbours of its tile
//           add an exact 0.
// Threads:  128 threads of four whole consecutive warps; they meet at one named barrier. What other blocks have written is
//           read past L1. The caller sees to it that q, K and V of the forward can be read when `ready()` returns, and that
//           nobody reads c.out before all units are done.
// Cost:     K and V of the chunk once, 2 * positions * W * 2 bytes, up to 8 KiB per warp in flight; about 2 microseconds
//           besides, and for the last unit of a (tile, head tile) about 1 per 32 chunks. Fits in 128 registers up to W = 128.
#pragma once

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/attend_merge.cuh"
#include "kernels/cuda/attend_strips.cuh"

namespace foresay::kernels::cuda {
namespace attention {

// Units of a strip that a lane has in flight: what registers there are. A unit of codes takes half of one of halves.
template <int kWidth, KvFormat kFormat, int kColumns>
constexpr int ring_units() {
    constexpr int kUnits = kWidth / 8, kMost = kFormat == KvFormat::q8 ? 16 : 8;
    constexpr int kRing = kWidth == 256                    ? kMost
                          : kWidth == 128 && kColumns == 1 ? kMost / 2
                                                           : kMost * 64 / (kWidth * kColumns);
    return kRing < kUnits ? kRing : kUnits;
}

// Queries of the tile as operands, and the positions of its rows, into shared memory.
template <int kWidth>
__device__ void put_queries(const AttendCall& c, const Tile& tile, UnitShared<kWidth>& shared, int thread) {
#pragma unroll 1
    for (int i = thread; i < kWidth; i += kUnitThreads) {  // 32 values of two rows for each four lanes
        const int group = i / 32, lane = i % 32;
        std::uint32_t operand[2][4];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const std::int32_t r = 8 * half + lane / 4;
            const bool valid = tile.valid(r);
            const float* values = c.q + (valid ? tile.values(c, r) : 0);
#pragma unroll
            for (int j = 0; j < 2; ++j) {  // heads are whole fours
                const std::int32_t d = 32 * group + 8 * (lane % 4) + 4 * j;
                const float4 four = valid && d < c.head_dim ? __ldcg(reinterpret_cast<const float4*>(values + d))
                                                            : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                operand[j][half] = pack(four.x, four.y);
                operand[j][half + 2] = pack(four.z, four.w);
            }
        }
        for (int j = 0; j < 2; ++j) {
            shared.q[2 * group + j][lane] = {operand[j][0], operand[j][1], operand[j][2], operand[j][3]};
        }
    }
    if (thread < kTileRows)
        shared.positions[thread] = tile.valid(thread) ? c.batch.rows[tile.row(thread)].position : -1;
}

// Scores of a strip to weights, times 2^-peak, as operands; the state moves to the new peak. `scales`: K's and V's, of
// position `lane` of the strip, if the cache has codes.
template <int kWidth, int kColumns, bool kSpecial, bool kCoded>
__device__ void weigh(const AttendCall& c, const UnitShared<kWidth>& shared, std::int32_t start, int lane,
                      float2 scales, float (&scores)[kBlocks][4], std::uint32_t (&weights)[kColumns][kBlocks],
                      Softmax<kWidth, kColumns>& state) {
    const float factor = c.scale * (kCoded ? kLog2e / kLargestCode : kLog2e);
    // Whether every row attends to all of the strip.
    const TileState& rows = shared.tile.state;
    const bool whole = start + kStrip - 1 <= rows.lowest && (c.window == 0 || start > rows.highest - c.window);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
        const auto each = [&](const auto& body) {
#pragma unroll
            for (int j = 0; j < kBlocks; ++j) {
                for (int e = 0; e < 2; ++e) body(scores[j][2 * n + e], 8 * (lane % 4) + 2 * j + e);
            }
        };
        each([&](float& score, int place) {
            if (kCoded) score *= __shfl_sync(0xffffffffu, scales.x, place);
            if (kSpecial && c.soft_cap > 0) {
                score = c.soft_cap * tanhf(score * (factor / kLog2e) / c.soft_cap) * kLog2e;
            } else {
                score *= factor;
            }
        });
        if (!whole) {
            const std::int32_t to = shared.positions[8 * n + lane / 4];
            const std::int32_t from = c.window > 0 ? to - c.window + 1 : 0;
            each([&](float& score, int place) {
                if (start + place < from || start + place > to) score = minus_infinity();
            });
        }
        float top = minus_infinity();
        each([&](float& score, int) { top = fmaxf(top, score); });
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
        top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
        top = fmaxf(top, state.peak[n]);
        const float zero = top == minus_infinity() ? 0.0f : top;  // nothing attended yet
        const float old_weight = power_of_two(state.peak[n] - zero);
        state.peak[n] = top;
        float sum = 0.0f;
        each([&](float& score, int place) {
            score = power_of_two(score - zero);
            sum += score;
            if (kCoded) score *= __shfl_sync(0xffffffffu, scales.y, place);
        });
        state.sum[n] = fmaf(state.sum[n], old_weight, sum);
#pragma unroll
        for (int j = 0; j < kBlocks; ++j) weights[n][j] = pack(scores[j][2 * n], scores[j][2 * n + 1]);
        const float first = __shfl_sync(0xffffffffu, old_weight, lane % 4 * 8);
        const float second = __shfl_sync(0xffffffffu, old_weight, lane % 4 * 8 + 4);
#pragma unroll
        for (int m = 0; m < kWidth / 16; ++m) {
            for (int i = 0; i < 4; ++i) state.out[n][m][i] *= i % 2 == 0 ? first : second;
        }
    }
}

// A warp's strips first, first + 4, ... below `last` (strip numbers), in order. kColumns: products of 8 operand rows.
// kSpecial: the rows may be those of a tree, or their scores capped. `ready` is called once, before anything of this forward
// is read; it and the queries' way to shared memory overlap with the first keys'.
template <int kWidth, KvFormat kFormat, int kColumns, bool kSpecial, class Ready>
__device__ void attend_strips(const AttendCall& c, const __half* kv, const Tile& tile, std::int32_t first,
                              std::int32_t last, UnitShared<kWidth>& shared, int barrier_id, const Ready& ready,
                              Softmax<kWidth, kColumns>& state) {
    using Strips = attention::Strips<kWidth, kFormat>;
    constexpr int kUnits = Strips::kUnits, kKeyUnits = Strips::kKeyUnits,
                  kRing = ring_units<kWidth, kFormat, kColumns>();
    static_assert(kUnits % kRing == 0);
    const int lane = group_thread() % 32;
    // All strips of the warp begin at the same place of a page.
    const Strips strips(first * kStrip % kPagePositions, lane);
    const std::int32_t* pages = c.batch.lists + tile.state.pages;
    const auto page_of = [&](std::int32_t strip) { return pages[strip * kStrip / kPagePositions]; };
    const __half* base = kv + tile.kv_head * c.layout.head_stride;
    // Positions from here on lie in the cells of a tree.
    const std::int32_t in_place =
        kSpecial && tile.state.branch > 0 ? tile.state.highest - tile.state.branch + 1 : 0x7fffffff;
    const auto in_tree = [&](std::int32_t strip) { return kSpecial && (strip + 1) * kStrip > in_place; };

    typename Strips::Unit ring[kRing] = {};  // not left undefined: compilers would keep what a unit before left there
    float2 scales = {}, next_scales = {};
    const auto load = [&](std::int32_t strip, const __half* page, int unit) {
        ring[unit % kRing] =
            in_tree(strip) ? Strips::gather(c, kv, tile, strip * kStrip, unit, lane) : strips.load(page, unit);
    };
    const auto load_scales = [&](std::int32_t strip, const __half* page) {
        if constexpr (Strips::kCoded) {
            next_scales =
                in_tree(strip) ? Strips::gather_scales(c, kv, tile, strip * kStrip, lane) : strips.load_scales(page);
        }
    };
    const __half* page = base;
    std::int32_t next_page = 0;
    // Keys of earlier forwards need not wait for this one's.
    const bool early = !kSpecial && (first + 1) * kStrip <= tile.state.committed;
    if (!early) ready();
    if (first < last) {
        page += page_of(first) * c.layout.page_stride;
        if (first + kUnitWarps < last) next_page = page_of(first + kUnitWarps);
#pragma unroll
        for (int unit = 0; unit < kRing; ++unit) load(first, page, unit);
        load_scales(first, page);
    }
    if (early) ready();
    put_queries<kWidth>(c, tile, shared, group_thread());
    group_barrier(barrier_id);

    const std::uint32_t queries = shared_address(&shared.q[0][lane]);
#pragma unroll 1
    for (std::int32_t strip = first; strip < last; strip += kUnitWarps) {
        if (Strips::kCoded) scales = next_scales;
        // The place of a unit that was used takes the one that is a ring's length ahead.
        const auto load_ahead = [&](int unit) {
            const int ahead = unit + kRing;
            if (ahead == kUnits) {
                page = base + next_page * c.layout.page_stride;
                if (strip + 2 * kUnitWarps < last) next_page = page_of(strip + 2 * kUnitWarps);
                if (strip + kUnitWarps < last) load_scales(strip + kUnitWarps, page);
            }
            if (ahead < kUnits) {
                load(strip, page, ahead);
            } else if (strip + kUnitWarps < last) {
                load(strip + kUnitWarps, page, ahead - kUnits);
            }
        };
        float scores[kBlocks][4] = {};
        uint4 q[2];
#pragma unroll
        for (int unit = 0; unit < kKeyUnits; ++unit) {
            if (unit % 2 == 0) {
                q[0] = load_shared4(queries + unit * 512);
                q[1] = load_shared4(queries + (unit + 1) * 512);
            }
            const Pair k = Strips::operands(ring[unit % kRing]);
            float(&low)[4] = scores[unit % 2 * 2], (&high)[4] = scores[unit % 2 * 2 + 1];
            multiply_add(low, q[0].x, q[0].y, q[0].z, q[0].w, k.low.x, k.low.y);
            multiply_add(high, q[0].x, q[0].y, q[0].z, q[0].w, k.high.x, k.high.y);
            multiply_add(low, q[1].x, q[1].y, q[1].z, q[1].w, k.low.z, k.low.w);
            multiply_add(high, q[1].x, q[1].y, q[1].z, q[1].w, k.high.z, k.high.w);
            load_ahead(unit);
        }
        std::uint32_t weights[kColumns][kBlocks];
        weigh<kWidth, kColumns, kSpecial, Strips::kCoded>(c, shared, strip * kStrip, lane, scales, scores, weights,
                                                          state);
#pragma unroll
        for (int unit = kKeyUnits; unit < kUnits; ++unit) {
            const Pair v = Strips::operands(ring[unit % kRing]);
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                float(&out)[4] = state.out[n][unit - kKeyUnits];
                multiply_add(out, v.low.x, v.high.x, v.low.y, v.high.y, weights[n][0], weights[n][1]);
                multiply_add(out, v.low.z, v.high.z, v.low.w, v.high.w, weights[n][2], weights[n][3]);
            }
            load_ahead(unit);
        }
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
        state.sum[n] += __shfl_xor_sync(0xffffffffu, state.sum[n], 1);
        state.sum[n] += __shfl_xor_sync(0xffffffffu, state.sum[n], 2);
    }
}

template <int kWidth, KvFormat kFormat, int kColumns, bool kSpecial, class Ready>
__device__ void attend_tile(const AttendCall& c, const __half* kv, const Tile& tile, std::int32_t chunk,
                            UnitShared<kWidth>& shared, int barrier_id, const Ready& ready) {
    const std::int32_t first = chunk_begin(chunk) / kStrip + group_thread() / 32;
    const std::int32_t last = (min(chunk_begin(chunk + 1), tile.state.highest + 1) + kStrip - 1) / kStrip;
    Softmax<kWidth, kColumns> state;
    attend_strips<kWidth, kFormat, kColumns, kSpecial>(c, kv, tile, first, last, shared, barrier_id, ready, state);
    const bool alone = shared.first_chunk == shared.last_chunk;
    add_warps<kWidth, kColumns, Strips<kWidth, kFormat>::kCoded>(
        state, shared, group_thread(), barrier_id, [&](int r, int d, float peak, float sum, float4 out) {
            if (alone) {
                put_row(c, shared.tile, r, d, sum, out);
                return;
            }
            Partial<kWidth>& partial = shared.chunks[shared.chunk];
            *reinterpret_cast<float4*>(&partial.out[r][d]) = out;
            if (d == 0) partial.peak_and_sum[r] = {peak, sum};
        });
}

template <int kWidth, KvFormat kFormat, bool kSpecial, class Ready>
__device__ void attend_unit(const AttendCall& c, const __half* kv, std::int32_t tile_index, std::int32_t head_tile,
                            std::int32_t chunk, std::int32_t chunks, char* memory, int barrier_id, const Ready& ready) {
    // Said for callers that are not inlined.
    auto& shared = *static_cast<UnitShared<kWidth>*>(__cvta_shared_to_generic(__cvta_generic_to_shared(memory)));
    {
        const Tile tile(c, tile_index, head_tile);
        const std::int32_t first_chunk = chunk_of(tile.least(c)), last_chunk = chunk_of(tile.state.highest);
        if (chunk < first_chunk || chunk > last_chunk) {
            ready();
            return;
        }
        group_barrier(barrier_id);  // all have done with the unit before this one
        if (group_thread() == 0) {
            const std::int64_t unit = static_cast<std::int64_t>(tile_index) * c.head_tiles + head_tile;
            shared.tile = tile;
            shared.chunks = reinterpret_cast<Partial<kWidth>*>(c.partial) + unit * chunks;
            shared.arrived = c.arrived + unit;
            shared.chunk = chunk;
            shared.first_chunk = first_chunk;
            shared.last_chunk = last_chunk;
        }
        if (tile.used() <= 8) {
            attend_tile<kWidth, kFormat, 1, kSpecial>(c, kv, tile, chunk, shared, barrier_id, ready);
        } else {
            attend_tile<kWidth, kFormat, 2, kSpecial>(c, kv, tile, chunk, shared, barrier_id, ready);
        }
    }
    if (shared.first_chunk == shared.last_chunk) return;

    __threadfence();
    group_barrier(barrier_id);
    if (group_thread() == 0) {
        shared.last = atomicAdd(shared.arrived, 1) == shared.last_chunk - shared.first_chunk;
        if (shared.last) __stcg(shared.arrived, 0);
    }
    group_barrier(barrier_id);
    if (!shared.last) return;
    __threadfence();
    merge_chunks<kWidth>(c, shared, group_thread(), barrier_id);
}

}  // namespace attention

// Asks for the keys and values of a unit that earlier forwards have left, by one warp.
template <int kWidth>
__device__ void prefetch_unit(const AttendCall& c, const __half* kv, std::int32_t tile_index, std::int32_t head_tile,
                              std::int32_t chunk) {
    const attention::Tile tile(c, tile_index, head_tile);
    const std::int32_t from = chunk_begin(chunk), to = min(chunk_begin(chunk + 1), tile.state.committed);
    if (to <= max(from, tile.least(c))) return;
    constexpr int kLine = 128 / sizeof(__half), kKeys = kPagePositions * kWidth;
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
    for (std::int32_t page = from / kPagePositions; page * kPagePositions < to; ++page) {
        const __half* base =
            kv + c.batch.lists[tile.state.pages + page] * c.layout.page_stride + tile.kv_head * c.layout.head_stride;
        const int keys = min(to - page * kPagePositions, kPagePositions) * kWidth;
#pragma unroll 1
        for (int at = lane * kLine; at < keys; at += 32 * kLine) prefetch(base + at);
#pragma unroll 1
        for (int at = lane * kLine; at < kKeys; at += 32 * kLine) prefetch(base + kKeys + at);
    }
}

// Shared memory of a group, aligned to 16 bytes.
template <int kWidth>
inline constexpr int kAttendUnitShared = sizeof(attention::UnitShared<kWidth>);

// A unit, by threads 128 i ... 128 i + 127 of a block, which call it together and meet at barrier `barrier_id`. For batches
// without trees and scores without a cap. Neighbouring units (tiles first, then head tiles, then chunks) read the same keys or
// lie in the same pages: best run at the same time on different multiprocessors. `kv`: the layer's, in place of c.kv.
template <int kWidth, KvFormat kFormat = KvFormat::f16>
__device__ void attend_unit(const AttendCall& c, const __half* kv, std::int32_t tile, std::int32_t head_tile,
                            std::int32_t chunk, std::int32_t chunks_of_launch, char* shared, int barrier_id) {
    attention::attend_unit<kWidth, kFormat, false>(c, kv, tile, head_tile, chunk, chunks_of_launch, shared, barrier_id,
                                                   [] {});
}

}  // namespace foresay::kernels::cuda
