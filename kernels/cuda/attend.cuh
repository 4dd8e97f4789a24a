// kernels/cuda/attend.cuh: attention of decode rows, by groups of 8 or 16 warps: a device function, so that a kernel which does
// more than attention can call it.
//
// Unit:     (tile, head tile, chunk): up to 16 (row, query head) pairs against the keys of one chunk (attend.h). A launch has
//           tiles * c.head_tiles * chunks units, of which those of chunks that a tile has no position in are nobody's. Units
//           may run in any order on any groups. Where a tile has several chunks, groups merge its rows (attend_merge.cuh).
// Layout:   the warps of a group divide a block of 128 positions (attend_runs.cuh): first keys, for scores, then values, for
//           outputs. Scores are Q . K^T, outputs V^T . P^T. Q, the weights P and the peaks of scores lie in shared memory, K
//           and V go from global memory into registers, those of a block while the warps are busy with the one before it,
//           also from unit to unit.
// Order:    blocks in order, the 8 or 4 products of a share of keys in two sums, the parts of a block's positions each for
//           itself to the unit's end, then in order; chunks in order. All sums of a row depend on its own position alone;
//           what a row does not attend to adds an exact 0.
// Threads:  all of a group's, which meet at one named barrier. What other blocks have written is read past L1. `ready()` is
//           called once by every thread of a group that may have a unit: when it returns, q, K and V of the forward can be
//           read. Before it a group reads what earlier forwards have left, and the batch. The caller sees to it that nobody
//           reads `out` before all units are done.
// Cost:     K and V of the chunk once, 2 * positions * W * 2 bytes, up to 64 KiB of them under way; about 1 microsecond a unit
//           besides, and for the last unit of a (tile, head tile) about 1 per 32 chunks.
#pragma once

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/attend_merge.cuh"

namespace foresay::kernels::cuda {
namespace attention {

// Who takes which unit: group i takes unit i, then whatever is next. Turn k of a tile and head tile (TileTurn) is the chunk k
// before its newest, because later chunks are longer and what is short is best shared out last.
class UnitQueue {
public:
    __device__ explicit UnitQueue(const AttendCall& c)
        : units_(c.units()), groups_(min(static_cast<std::int32_t>(gridDim.x), units_)), taken_(c.taken) {}
    // By one warp; what has() denies when there is none left, then not to be called again. Takes a while to be known.
    __device__ std::int32_t take() const {
        if (!more()) return units_;
        std::int32_t count = 0;
        if (threadIdx.x % 32 == 0) {
            count = atomicAdd(taken_, 1);
            if (count == units_ - 1) __stcg(taken_, 0);  // the last of all
        }
        return __shfl_sync(0xffffffffu, count, 0) + groups_;
    }
    __device__ bool has(std::int32_t u) const { return u < units_; }
    __device__ std::int32_t none() const { return units_; }
    __device__ bool more() const { return units_ > groups_; }

private:
    std::int32_t units_, groups_;
    std::int32_t* taken_;
};

// Where unit u lies; if it has no positions, the next that is taken and has some, or if it does not take, none. By one
// warp.
static __device__ __noinline__ void find_unit(const AttendCall& c, const __half* kv, std::int32_t u, bool takes,
                                              UnitPlace& to) {
    // Said because the caller is not seen.
    auto& place = *static_cast<UnitPlace*>(__cvta_shared_to_generic(__cvta_generic_to_shared(&to)));
    const UnitQueue queue(c);
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
    for (; queue.has(u); u = takes ? queue.take() : queue.none()) {
        const TileTurn unit(c, u);
        const Tile tile(c, unit.tile, unit.head_tile);
        const std::int32_t least = tile.least(c), end = tile.state.highest + 1;
        const std::int32_t first_chunk = chunk_of(least), last_chunk = chunk_of(end - 1);
        const std::int32_t chunk = last_chunk - unit.turn;
        if (chunk < first_chunk) continue;
        const std::int32_t first_block = max(chunk_begin(chunk), least) / kBlock;
        const std::int32_t end_block = (min(chunk_begin(chunk + 1), end) + kBlock - 1) / kBlock;
        const __half* base = kv + tile.kv_head * c.layout.head_stride;
        const std::int32_t page = first_block * kBlockPages + lane;
        if (lane < kMaxChunkPositions / kPagePositions) {
            place.pages[lane] = page * kPagePositions < end
                                    ? base + c.batch.lists[tile.state.pages + page] * c.layout.page_stride
                                    : base;
        }
        if (lane < kTileRows) place.positions[lane] = tile.valid(lane) ? c.batch.rows[tile.row(lane)].position : -1;
        if (lane == 0) {
            place.tile = tile;
            place.number = u;
            place.chunk = chunk;
            place.first_chunk = first_chunk;
            place.last_chunk = last_chunk;
            place.first_block = first_block;
            place.end_block = end_block;
            place.in_place = tile.state.branch > 0 ? end - tile.state.branch : 0x7fffffff;
            place.base = base;
        }
        return;
    }
    if (lane == 0) place.number = -1;
}

// Queries of the tile as operands into shared memory: operand rows quad and quad + 8, the latter where there are any.
template <class Form, int kWidth, int kWarps, int kColumns>
__device__ void put_queries(const AttendCall& c, const Tile& tile, GroupShared<kWidth>& shared, int thread) {
#pragma unroll 1
    for (int i = thread; i < kWidth * 2; i += 32 * kWarps) {  // a four of each of two rows
        const int s = i / 32, lane = i % 32;
        std::uint32_t operand[2][2] = {};
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            const std::int32_t r = 8 * n + lane / 4, d = Form::value_of(s, lane % 4);
            if (!tile.valid(r) || d >= c.head_dim) continue;  // heads are whole fours
            const float4 four = __ldcg(reinterpret_cast<const float4*>(c.q + tile.values(c, r) + d));
            operand[n][0] = pack(four.x, four.y);
            operand[n][1] = pack(four.z, four.w);
        }
        shared.queries[s][lane] = {operand[0][0], operand[1][0], operand[0][1], operand[1][1]};
    }
}

// The state of an online softmax of a warp.
template <int kTurns, int kColumns>
struct Softmax {
    float peak[kColumns];         // of operand row 8 n + quad: of the scores so far, times log2(e)
    float sum[kTurns][kColumns];  // this lane's share
    // Of operand rows 8 n + 2 place + {0, 1}: value quad of the share, then quad + 8.
    float out[kTurns][kColumns][4];

    __device__ Softmax() {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            peak[n] = minus_infinity();
#pragma unroll
            for (int turn = 0; turn < kTurns; ++turn) {
                sum[turn][n] = 0.0f;
                for (float& value : out[turn][n]) value = 0.0f;
            }
        }
    }
};

// The blocks of a unit. kColumns: eights of operand rows. kSpecial: the rows may be those of a tree, or their scores capped.
// find_next() is called early enough for others to see what it finds, and late enough for it to have been looked for.
template <int kWidth, KvFormat kFormat, int kWarps, bool kSpecial, int kColumns, class FindNext>
__device__ __forceinline__ void attend_blocks(const AttendCall& c, const UnitPlace& unit, const UnitPlace& next,
                                              GroupShared<kWidth>& shared, int warp, int lane,
                                              Runs<kWidth, kFormat, kWarps, kSpecial>& runs,
                                              Softmax<kShares / kWarps, kColumns>& state, const FindNext& find_next) {
    using Form = RunForm<kWidth, kFormat>;
    constexpr int kTurns = kShares / kWarps, kKeySteps = Form::kKeyRun / 4, kValueSteps = Form::kValueRun / 4;
    const int quad = lane / 4, place = lane % 4;
    const float factor = c.scale * (Form::kCoded ? kLog2e / kLargestCode : kLog2e);
    std::int32_t from[kColumns], to[kColumns];  // positions that this lane's rows attend to
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
        to[n] = unit.positions[8 * n + quad];
        from[n] = c.window > 0 ? to[n] - c.window + 1 : 0;
    }
#pragma unroll 1
    for (std::int32_t block = unit.first_block; block < unit.end_block; ++block) {
        const bool last = block + 1 == unit.end_block;
        const UnitPlace& ahead = last ? next : unit;
        const std::int32_t ahead_block = last ? next.first_block : block + 1;
        const bool more = !last || next.number >= 0;

        float scores[kTurns][4];
        float4 scales[kTurns];
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
            float sums[2][4] = {};
#pragma unroll
            for (int g = 0; g < Form::kKeys; ++g) {
#pragma unroll
                for (int s = 0; s < kKeySteps; ++s) {
                    const uint4 q = shared.queries[g * kKeySteps + s][lane];
                    const uint2 k = Form::four(runs.keys[turn][g], s);
                    multiply_add(sums[s % 2], q.x, q.y, q.z, q.w, k.x, k.y);
                }
            }
#pragma unroll
            for (int i = 0; i < 4; ++i) scores[turn][i] = sums[0][i] + sums[1][i];
            scales[turn] = runs.scales[turn];
            if (more) {
                runs.template load_keys<Written::ever>(c, ahead, ahead_block, turn, warp, lane);
                runs.template load_scales<Written::ever>(c, ahead, ahead_block, turn, warp, lane);
            }
        }
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
            const int share = runs.share(turn, warp);
            const std::int32_t position = block * kBlock + kShareKeys * share + 2 * place;
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
#pragma unroll
                for (int e = 0; e < 2; ++e) {
                    float& score = scores[turn][2 * n + e];
                    if (Form::kCoded) score *= e == 0 ? scales[turn].x : scales[turn].z;
                    if (kSpecial && c.soft_cap > 0) {
                        score = c.soft_cap * tanhf(score * (factor / kLog2e) / c.soft_cap) * kLog2e;
                    } else {
                        score *= factor;
                    }
                    if (position + e < from[n] || position + e > to[n]) score = minus_infinity();
                }
                float top = fmaxf(scores[turn][2 * n], scores[turn][2 * n + 1]);
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
                if (place == 0) shared.peaks[8 * n + quad][share] = top;
            }
        }
        group_barrier<kWarps>();
        float old[kColumns];  // what outputs and sums so far are worth, of row 8 n + quad
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            float top = state.peak[n];
#pragma unroll
            for (int i = 0; i < kShares; i += 4) {
                const float4 four = *reinterpret_cast<const float4*>(&shared.peaks[8 * n + quad][i]);
                top = fmaxf(fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)), top);
            }
            old[n] = worth(state.peak[n], top);
            state.peak[n] = top;
            const float zero = top == minus_infinity() ? 0.0f : top;  // nothing attended yet
#pragma unroll
            for (int turn = 0; turn < kTurns; ++turn) {
                const int share = runs.share(turn, warp);
                float a = power_of_two(scores[turn][2 * n] - zero), b = power_of_two(scores[turn][2 * n + 1] - zero);
                state.sum[turn][n] = fmaf(state.sum[turn][n], old[n], a + b);
                if (Form::kCoded) {
                    a *= scales[turn].y;
                    b *= scales[turn].w;
                }
                *reinterpret_cast<std::uint32_t*>(&shared.weights[8 * n + quad][kShareKeys * share + 2 * place]) =
                    pack(a, b);
            }
        }
        if (!last && block == unit.first_block) find_next();
        group_barrier<kWarps>();
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            const float first = __shfl_sync(0xffffffffu, old[n], place * 8);
            const float second = __shfl_sync(0xffffffffu, old[n], place * 8 + 4);
#pragma unroll
            for (int turn = 0; turn < kTurns; ++turn) {
                for (int i = 0; i < 4; ++i) state.out[turn][n][i] *= i % 2 == 0 ? first : second;
            }
        }
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
            const int part = runs.share(turn, warp) / Form::kTiles;
            if (part >= Form::kParts) continue;
#pragma unroll
            for (int g = 0; g < Form::kValues; ++g) {
#pragma unroll
                for (int s = 0; s < kValueSteps; ++s) {
                    const uint2 low = Form::four(runs.values[turn][g][0], s);
                    const uint2 high = Form::four(runs.values[turn][g][1], s);
#pragma unroll
                    for (int n = 0; n < kColumns; ++n) {
                        const int at = part * Form::kPart + Form::position_of(g * kValueSteps + s, place);
                        const uint2 p = *reinterpret_cast<const uint2*>(&shared.weights[8 * n + quad][at]);
                        multiply_add(state.out[turn][n], low.x, high.x, low.y, high.y, p.x, p.y);
                    }
                }
                if (more) runs.template load_values<Written::ever>(c, ahead, ahead_block, turn, g, warp, lane);
            }
        }
    }
}

// Adds the shares of a unit and puts its rows where they belong: to `to`, or beside those of other chunks.
template <int kWidth, int kWarps, bool kCoded, int kColumns>
__device__ __forceinline__ void put_rows(const AttendCall& c, const UnitPlace& unit, float* to,
                                         GroupShared<kWidth>& shared, int warp, int lane,
                                         Softmax<kShares / kWarps, kColumns>& state) {
    constexpr int kTurns = kShares / kWarps, kTiles = kWidth / 16, kParts = GroupShared<kWidth>::kParts;
    const int quad = lane / 4, place = lane % 4;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
        const int share = warp + kWarps * turn, part = share / kTiles, d = 16 * (share % kTiles) + quad;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            float sum = state.sum[turn][n];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if (place == 0) {
                shared.sums[8 * n + quad][share] = sum;
                if (share == 0) shared.tops[8 * n + quad] = state.peak[n];
            }
            if (part >= kParts) continue;
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                shared.parts[part][8 * n + 2 * place + i % 2][d + i / 2 * 8] = state.out[turn][n][i];
            }
        }
    }
    group_barrier<kWarps>();
    constexpr int kFours = kWidth / 4;  // of a row
    Partial<kWidth>* const chunks = chunks_of<kWidth>(c, TileTurn(c, unit.number));
#pragma unroll 1
    for (int i = 32 * warp + lane; i < 8 * kColumns * kFours; i += 32 * kWarps) {
        const int r = i / kFours, d = i % kFours * 4;
        if (!unit.tile.valid(r)) continue;
        float sum = 0.0f;
#pragma unroll
        for (int share = 0; share < kShares; share += 4) {
            const float4 four = *reinterpret_cast<const float4*>(&shared.sums[r][share]);
            sum = (((sum + four.x) + four.y) + four.z) + four.w;
        }
        float4 out = *reinterpret_cast<const float4*>(&shared.parts[0][r][d]);
#pragma unroll
        for (int part = 1; part < kParts; ++part) {
            const float4 more = *reinterpret_cast<const float4*>(&shared.parts[part][r][d]);
            out = make_float4(out.x + more.x, out.y + more.y, out.z + more.z, out.w + more.w);
        }
        const auto scale = [&](float by) { out = make_float4(out.x * by, out.y * by, out.z * by, out.w * by); };
        if (kCoded) scale(1.0f / kLargestCode);
        if (unit.alone()) {
            scale(reciprocal(sum));
            if (d < c.head_dim) *reinterpret_cast<float4*>(to + unit.tile.values(c, r) + d) = out;
            continue;
        }
        Partial<kWidth>& partial = chunks[unit.chunk];
        __stcg(reinterpret_cast<float4*>(&partial.out[r][d]), out);
        if (d == 0) __stcg(&partial.peak_and_sum[r], float2{shared.tops[r], sum});
    }
}

}  // namespace attention

// Shared memory of a group, aligned to 16 bytes: of the places of its units, and what it needs after ready().
inline constexpr int kAttendPlaces = (sizeof(attention::UnitPlaces) + 15) / 16 * 16;
template <int kWidth>
inline constexpr int kAttendGroup = sizeof(attention::GroupShared<kWidth>);

// A share of the units of an attention, by the first 32 * kWarps threads of a block, which call it together and meet at
// barrier 1; all blocks of the launch call it. Neighbouring units read the same keys or lie in the same pages. `kv`: the
// layer's, in place of c.kv, and `out` in place of c.out. kSpecial: for batches with trees and scores with a cap, too.
template <int kWidth, KvFormat kFormat, int kWarps, bool kSpecial, class Ready>
__device__ __forceinline__ void attend_group(const AttendCall& c, const __half* kv, float* out, char* place_memory,
                                             char* group_memory, const Ready& ready) {
    using namespace attention;
    using Form = RunForm<kWidth, kFormat>;
    // Said for callers that are not inlined.
    auto& places = *static_cast<UnitPlaces*>(__cvta_shared_to_generic(__cvta_generic_to_shared(place_memory)));
    auto& shared = *static_cast<GroupShared<kWidth>*>(__cvta_shared_to_generic(__cvta_generic_to_shared(group_memory)));
    const int thread = static_cast<int>(threadIdx.x), warp = thread / 32, lane = thread % 32;
    // The last blocks have the first units, because the first blocks may have had more to do before.
    const auto groups = static_cast<std::int32_t>(gridDim.x),
               group = groups - 1 - static_cast<std::int32_t>(blockIdx.x);
    if (!c.has_member(group, groups)) return;
    const bool units = UnitQueue(c).has(group);
    if (warp == kWarps - 1) {
        if (lane == 0) {
            places.kv = kv;
            places.out = out;
        }
        if (units) {
            find_unit(c, kv, group, false, places.of[0]);
        } else if (lane == 0) {
            places.of[0].number = -1;
        }
    }
    group_barrier<kWarps>();
    bool some = places.of[0].number >= 0;
    Runs<kWidth, kFormat, kWarps, kSpecial> runs;
    if (some) runs.template load<Written::before>(c, places.of[0], places.of[0].first_block, warp, lane);
    ready();
    if (!some && units && UnitQueue(c).more()) {
        group_barrier<kWarps>();  // all know
        if (warp == kWarps - 1) find_unit(c, places.kv, UnitQueue(c).take(), true, places.of[0]);
        group_barrier<kWarps>();
        some = places.of[0].number >= 0;
        if (some) runs.template load<Written::before>(c, places.of[0], places.of[0].first_block, warp, lane);
    }
    if (some) runs.template load<Written::now>(c, places.of[0], places.of[0].first_block, warp, lane);
#pragma unroll 1
    for (int turn = 0; some; turn ^= 1) {
        const UnitPlace& unit = places.of[turn];
        UnitPlace& next = places.of[turn ^ 1];
        std::int32_t number = 0;  // of the next unit, which one warp takes
        if (warp == kWarps - 1) number = UnitQueue(c).take();
        const auto find_next = [&] {
            if (warp == kWarps - 1) find_unit(c, places.kv, number, true, next);
        };
        if (unit.first_block + 1 == unit.end_block) find_next();
        const auto with_columns = [&](auto columns) {
            constexpr int kColumns = columns;
            put_queries<Form, kWidth, kWarps, kColumns>(c, unit.tile, shared, thread);
            group_barrier<kWarps>();
            Softmax<kShares / kWarps, kColumns> state;
            attend_blocks<kWidth, kFormat, kWarps, kSpecial, kColumns>(c, unit, next, shared, warp, lane, runs, state,
                                                                       find_next);
            put_rows<kWidth, kWarps, Form::kCoded, kColumns>(c, unit, places.out, shared, warp, lane, state);
        };
        if (unit.tile.used() <= 8) {
            with_columns(std::integral_constant<int, 1>());
        } else {
            with_columns(std::integral_constant<int, 2>());
        }
        some = next.number >= 0;
        group_barrier<kWarps>();  // all have done with this unit
    }
    merge_rows<kWidth, kWarps>(c, places.out, shared, warp, lane);
}

}  // namespace foresay::kernels::cuda
