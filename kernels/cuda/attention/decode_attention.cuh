// kernels/cuda/attention/decode_attention.cuh: attention of decode rows as a device function, so that the decode kernel
// can run it between its matrices.
//
// Unit:     (tile, head tile, chunk): up to 16 (row, query head) pairs that share a KV head, the M of one mma, against
//           the keys of one chunk (attention.h). A launch has tiles * head_tiles * chunks units, some of them empty: a
//           tile has no positions in every chunk. Units run in any order on any group.
// Group:    8 warps (16 for heads wider than 128) work on one unit at a time. A CTA has one or two groups, which never
//           wait for each other: while one meets at its barrier, the other one's loads are in flight.
//
// Data flow of a block of 64 or 128 positions, per group:
//
//   K       global --> registers of the warp that has these positions           (KvFragments::load_keys)
//   scores  Q . K^T by mma, Q from shared memory; peak of each row --> shared memory
//   meet
//   weights exp2(score - peak) --> shared memory, as float16; the old sums and outputs are scaled down
//   meet
//   V       global --> registers of the warp that has these 16 values           (KvFragments::load_values)
//   output  V^T . P^T by mma into registers, P from shared memory
//
// Each fragment of K and V is loaded for the next block as soon as the products have used it, also across units, so
// that up to 32 KiB of a group are in flight.
//
// Warps:    for scores a warp has 8 (or 16) positions of the block, for outputs 16 values of the head. Lane (quad,
//           place) = (lane / 4, lane % 4).
// Shared:   GroupShared (queries, weights, peaks, sums; the merge uses the same memory), and two UnitDescriptors: of
//           the current unit and of the next one, which the last warp of the group looks up meanwhile.
// Units:    group i begins with unit i. After that units are taken from a counter (UnitQueue), where there are more
//           units than groups.
// Waits:    the meeting of a group is named barrier 1 or 2. `ready()` returns when Q, K and V of this forward can be
//           read: before it a group loads only positions of earlier forwards. Loads bypass L1, because other CTAs have
//           written what they read.
// Merge:    where a tile has several chunks, each unit leaves (peak, sum, output) in global memory in flagged words,
//           and groups merge the rows when they have no units left (merge_chunks.cuh).
// Order:    blocks in order, two accumulators for the scores of a block, chunks in order. All sums of a row depend on
//           its own position alone; what a row does not attend to adds an exact 0 (law 1).
// Caller:   no one may read `out` before all units and merges of the launch are done.
// Cost:     reads K and V of a chunk once, 2 * positions * W * 2 bytes; about 1 microsecond per unit besides.
#pragma once

#include "kernels/cuda/attention/finish_heads.cuh"
#include "kernels/cuda/attention/merge_chunks.cuh"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/rowwise/heads.cuh"

namespace foresay::kernels::cuda {
namespace attention {

// Where attention is a launch of its own: CTAs, one group each, of a multiprocessor. Wider heads have 16 warps a group,
// and twice the fragments in registers.
constexpr int blocks_of(int width) { return width > 128 ? 1 : 2; }

// Which group takes which unit: group i takes unit i, then the next one that no group has taken. Unit numbers count
// ranks slowest (UnitIndex): rank k of a tile is the chunk k before its newest, because later chunks are longer, and
// what is short is best dealt out last.
class UnitQueue {
public:
    __device__ UnitQueue(const AttendCall& c, std::int32_t groups)
        : units_(c.units()), groups_(min(groups, units_)), taken_(c.taken) {}
    // By one warp. Returns a number that has() refuses when there are no more; take() must not be called again then.
    // The result takes as long as an atomic in L2.
    __device__ std::int32_t take() const {
        if (!more()) return units_;
        std::int32_t count = 0;
        if (threadIdx.x % 32 == 0) {
            count = atomicAdd(taken_, 1);
            if (count == units_ - 1) __stcg(taken_, 0);  // the last take of the launch leaves the counter as it was
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

// Writes the descriptor of unit u, of the units that `groups` groups share. If u is empty: of the next one that is
// taken and is not, or if the group does not take (`takes`), number -1. By one warp.
static __device__ __noinline__ void find_unit(const AttendCall& c, const __half* kv, std::int32_t groups,
                                              std::int32_t u, bool takes, UnitDescriptor& to) {
    // Tells the compiler that the pointer is to shared memory, which it cannot see from a function that is not inlined.
    auto& place = *static_cast<UnitDescriptor*>(__cvta_shared_to_generic(__cvta_generic_to_shared(&to)));
    const UnitQueue queue(c, groups);
    const std::int32_t block_shift = c.block_shift;
    const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll 1
    for (; queue.has(u); u = takes ? queue.take() : queue.none()) {
        const UnitIndex unit(c, u);
        const Tile tile(c, unit.tile, unit.head_tile);
        const std::int32_t least = tile.least(c), end = tile.state.highest + 1;
        const std::int32_t first_chunk = chunk_of(least, block_shift), last_chunk = chunk_of(end - 1, block_shift);
        const std::int32_t chunk = last_chunk - unit.rank;
        if (chunk < first_chunk) continue;
        const std::int32_t first_block = max(chunk_begin(chunk, block_shift), least) >> block_shift;
        const std::int32_t end_block =
            (min(chunk_begin(chunk + 1, block_shift), end) + (1 << block_shift) - 1) >> block_shift;
        const __half* base = kv + tile.kv_head * c.layout.head_stride;
        const std::int32_t page = (first_block << block_shift) / kPagePositions + lane;
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
            place.has_new_kv = end_block << block_shift > tile.state.committed;
        }
        return;
    }
    if (lane == 0) place.number = -1;
}

// Writes K and V of the forward's own positions of a unit into the cache, as codes. Every unit that reads them writes
// them for itself; all write the same bytes.
template <class Group>
__device__ __noinline__ void store_new_codes(const AttendCall& c, const UnitDescriptor& unit, const Group& group) {
    const std::int32_t first = unit.first_block << c.block_shift, end = unit.end_block << c.block_shift;
    const std::int32_t values = c.kv_heads * c.head_dim;  // of K, and of V
    const TileState tile = unit.tile.state;
#pragma unroll 1
    for (std::int32_t task = group.warp; task < 2 * c.rows; task += group.warps()) {
        const std::int32_t t = task / 2;
        const RowState row = c.batch.rows[t];
        if (row.pages != tile.pages || row.position < first || row.position >= end || row.position > tile.highest)
            continue;
        const float* const from = c.new_kv + (2 * t + task % 2) * values + unit.tile.kv_head * c.head_dim;
        auto* const page = const_cast<__half*>(unit.pages[(row.position - first) / kPagePositions]);
        store_codes<kFewValues>(page, c.layout.width, row.position % kPagePositions, task % 2 == 1, c.head_dim,
                                group.lane, [&](std::int32_t d) { return __ldcg(from + d); });
    }
}

// Queries of the tile as operands A into shared memory: rows quad and quad + 8 of each lane, in the order of values
// that key fragments have. kColumns: 1 when rows 8 to 15 are empty.
template <class Form, int kWidth, int kColumns, class Shared>
__device__ void store_queries(const AttendCall& c, const Tile& tile, Shared& shared, int thread) {
#pragma unroll 1
    for (int i = thread; i < kWidth * 2; i += 32 * group_warps(kWidth)) {  // a four of each of two rows
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

// The online softmax of a warp's rows, between blocks.
template <int kColumns>
struct Softmax {
    float peak[kColumns];  // of operand row 8 n + quad: of the scores so far, times log2(e)
    float sum[kColumns];   // of this lane's positions
    // Of operand rows 8 n + 2 place + {0, 1}: value quad of the warp's, then quad + 8.
    float out[kColumns][4];

    __device__ Softmax() {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            peak[n] = minus_infinity();
            sum[n] = 0.0f;
            for (float& value : out[n]) value = 0.0f;
        }
    }
};

// All blocks of the unit in descriptor `current`, and the loads for the first block of the next unit. kColumns: eights
// of operand rows. kSpecial: the rows may be those of a tree, or their scores capped. find_next() fills the other
// descriptor; it is called after the first block, early enough for the loads of the last one, and late enough for
// UnitQueue::take() to have an answer. What follows from the thread's number is computed where it is used: one register
// too many is a spill, and a reload of a spilled value waits for all loads in flight.
template <int kWidth, KvFormat kFormat, bool kSpecial, int kColumns, class Memory, class FindNext>
__device__ __forceinline__ void attend_blocks(const Memory& memory, int current,
                                              KvFragments<kWidth, kFormat, kSpecial>& runs, Softmax<kColumns>& state,
                                              const FindNext& find_next) {
    using Form = KvFragmentForm<kWidth, kFormat>;
    using Group = GroupThread<group_warps(kWidth)>;
    constexpr int kKeySteps = Form::kKeyRun / 4, kValueSteps = Form::kValueRun / 4, kEights = Form::kEights;
    std::int32_t block = memory.units().of[current].first_block;
#pragma unroll 1
    for (bool last = false; !last; ++block) {
        const UnitDescriptors& units = memory.units();
        last = block + 1 == units.of[current].end_block;
        const UnitDescriptor& ahead = units.of[last ? current ^ 1 : current];
        const std::int32_t ahead_block = last ? ahead.first_block : block + 1;
        const AttendCall& c = memory.call();
        const bool more = ahead.number >= 0 && !(last && ahead.has_new_kv && c.writes_kv());

        // Scores of this block: Q . K^T. Two accumulators, because one would make each mma wait for the one before it.
        // The keys of the next block are asked for as soon as an eight is used.
        float scores[kEights][4];
        const float scale = runs.scale;
        {
            const Group group;
            const auto& shared = memory.shared();
#pragma unroll
            for (int e = 0; e < kEights; ++e) {
                float sums[2][4] = {};
#pragma unroll
                for (int g = 0; g < Form::kKeys; ++g) {
#pragma unroll
                    for (int s = 0; s < kKeySteps; ++s) {
                        const uint4 q = shared.queries[g * kKeySteps + s][group.lane];
                        const uint2 k = Form::four_keys(c.layout, runs.keys[e][g], s);
                        multiply_add(sums[s % 2], q.x, q.y, q.z, q.w, k.x, k.y);
                    }
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) scores[e][i] = sums[0][i] + sums[1][i];
                if (more) runs.template load_keys<Written::ever>(c, ahead, ahead_block, e, group.warp, group.lane);
            }
            if (more) runs.template load_scales<Written::ever>(c, ahead, ahead_block, group.warp, group.lane);
        }
        {
            const Group group;
            auto& shared = memory.shared();
            // Scale, mask, and the peak of each row among this warp's positions, to shared memory.
            const float factor = c.scale * (Form::kLow     ? kLog2e * Form::key_factor(c.layout)
                                            : Form::kCoded ? kLog2e / kLargestCode
                                                           : kLog2e);
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                // Positions that this lane's row attends to.
                const std::int32_t to = memory.units().of[current].positions[8 * n + group.quad()];
                const std::int32_t from = c.window > 0 ? to - c.window + 1 : 0;
                float top = minus_infinity();
#pragma unroll
                for (int i = 0; i < 2 * kEights; ++i) {
                    const int e = i / 2, odd = i % 2;
                    const std::int32_t position =
                        block * Form::kBlock + runs.eight(group.warp, e) + 2 * group.place() + odd;
                    float& score = scores[e][2 * n + odd];
                    if (Form::kCoded) score *= runs.key_scale(scale, e, group.place(), odd);
                    if (kSpecial && c.soft_cap > 0) {
                        score = c.soft_cap * tanhf(score * (factor / kLog2e) / c.soft_cap) * kLog2e;
                    } else {
                        score *= factor;
                    }
                    if (position < from || position > to) score = minus_infinity();
                    top = fmaxf(top, score);
                }
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 1));
                top = fmaxf(top, __shfl_xor_sync(0xffffffffu, top, 2));
                if (group.place() == 0) shared.peaks[8 * n + group.quad()][group.warp] = top;
            }
            group.meet();
        }
        float old[kColumns];  // factor of the outputs and sums so far, of row 8 n + quad
        {
            const Group group;
            auto& shared = memory.shared();
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                // The peak over all warps and all blocks so far, then the weights exp2(score - peak), which go to
                // shared memory as float16 for all warps.
                float top = state.peak[n];
#pragma unroll
                for (int i = 0; i < group_warps(kWidth); i += 4) {
                    const float4 four = *reinterpret_cast<const float4*>(&shared.peaks[8 * n + group.quad()][i]);
                    top = fmaxf(fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w)), top);
                }
                old[n] = worth(state.peak[n], top);
                state.peak[n] = top;
                const float zero = top == minus_infinity() ? 0.0f : top;  // nothing attended yet
                float here = 0.0f;
#pragma unroll
                for (int e = 0; e < kEights; ++e) {
                    float a = power_of_two(scores[e][2 * n] - zero), b = power_of_two(scores[e][2 * n + 1] - zero);
                    here += a + b;
                    if (Form::kCoded) {
                        a *= runs.value_scale(scale, e, group.place(), 0);
                        b *= runs.value_scale(scale, e, group.place(), 1);
                    }
                    const int at = runs.eight(group.warp, e) + 2 * group.place();
                    *reinterpret_cast<std::uint32_t*>(&shared.weights[8 * n + group.quad()][at]) = pack(a, b);
                }
                state.sum[n] = fmaf(state.sum[n], old[n], here);
            }
            if (!last && block == memory.units().of[current].first_block) find_next();
            group.meet();
        }
        const Group group;
        // Outputs: V^T . P^T. Warps beyond the values of the head have none. The old outputs are scaled to the new peak
        // first.
        if (group.warp >= Form::kTiles) continue;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            const float first = __shfl_sync(0xffffffffu, old[n], group.place() * 8);
            const float second = __shfl_sync(0xffffffffu, old[n], group.place() * 8 + 4);
            for (int i = 0; i < 4; ++i) state.out[n][i] *= i % 2 == 0 ? first : second;
        }
        const auto& shared = memory.shared();
#pragma unroll
        for (int g = 0; g < Form::kValues; ++g) {
#pragma unroll
            for (int s = 0; s < kValueSteps; ++s) {
                uint2 low, high;
                Form::four_values(c.layout, runs.values[g], s, group.warp, low, high);
#pragma unroll
                for (int n = 0; n < kColumns; ++n) {
                    const int at = Form::position_of(g * kValueSteps + s, group.place());
                    const uint2 p = *reinterpret_cast<const uint2*>(&shared.weights[8 * n + group.quad()][at]);
                    multiply_add(state.out[n], low.x, high.x, low.y, high.y, p.x, p.y);
                }
            }
            if (more) runs.template load_values<Written::ever>(c, ahead, ahead_block, g, group.warp, group.lane);
        }
    }
}

// The rows of a finished unit: divided by their sums to `to` where the tile has this chunk only, else with peak and sum
// to the flagged words of the merge.
template <class Form, int kWidth, int kColumns, class Output, class Shared, class Group>
__device__ __forceinline__ void store_rows(const AttendCall& c, const UnitDescriptor& unit, float* to,
                                           const float* sinks, Shared& shared, const Group& group,
                                           Softmax<kColumns>& state) {
    const int quad = group.quad(), place = group.place(), d = 16 * group.warp + quad;
    constexpr int kSinkAt = group_warps(kWidth);  // of a row of `sums`, after those of the warps
    const bool alone = unit.alone();
    Partial<kWidth>& partial = chunks_of<kWidth>(c, UnitIndex(c, unit.number))[unit.chunk];
    const auto each_value = [&](const auto& put) {
        if (group.warp >= kWidth / 16) return;
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int r = 8 * n + 2 * place + e;
                if (unit.positions[r] >= 0) put(r, state.out[n][e], state.out[n][2 + e]);
            }
        }
    };
    if (Form::kCoded) {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            for (float& value : state.out[n]) value *= Form::value_factor(c.layout);
        }
    }
    if (!alone) {
        each_value([&](int r, float low, float high) {
            __stcg(&partial.out[r][d], low);
            __stcg(&partial.out[r][d + 8], high);
        });
    }
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
        float sum = state.sum[n];
        sum += __shfl_xor_sync(0xffffffffu, sum, 1);
        sum += __shfl_xor_sync(0xffffffffu, sum, 2);
        if (place == 0) shared.sums[8 * n + quad][group.warp] = sum;
        // A sink joins the whole sum, as in merge_row(): whether a row is merged depends on its neighbours.
        if (alone && sinks != nullptr && group.warp == 0 && place == 0 && unit.positions[8 * n + quad] >= 0) {
            shared.sums[8 * n + quad][kSinkAt] = sink_weight(sinks[unit.tile.head(8 * n + quad)], state.peak[n]);
        }
    }
    group.meet();
    const auto sum_of = [&](int r) {
        float sum = 0.0f;
#pragma unroll
        for (int warp = 0; warp < group_warps(kWidth); warp += 4) {
            const float4 four = *reinterpret_cast<const float4*>(&shared.sums[r][warp]);
            sum = (((sum + four.x) + four.y) + four.z) + four.w;
        }
        return sum;
    };
    if (!alone) {
        // By lanes that know the peak.
        if (group.warp == 0 && place < kColumns && unit.positions[8 * place + quad] >= 0) {
            const float peak = place == 0 ? state.peak[0] : state.peak[kColumns - 1];
            __stcg(&partial.peak_and_sum[8 * place + quad], float2{peak, sum_of(8 * place + quad)});
        }
        return;
    }
    each_value([&](int r, float low, float high) {
        const float factor = reciprocal(sinks != nullptr ? sum_of(r) + shared.sums[r][kSinkAt] : sum_of(r));
        float* const row = to + Output::place(c, unit.tile, r);
        if (d < c.head_dim) Output::store(row + d, low * factor);
        if (d + 8 < c.head_dim) Output::store(row + d + 8, high * factor);
    });
}

}  // namespace attention

// Shared memory of a group, aligned to 16 bytes: its two unit descriptors, and what it needs after ready().
inline constexpr int kAttendUnitBytes = (sizeof(attention::UnitDescriptors) + 15) / 16 * 16;
template <int kWidth, KvFormat kFormat>
inline constexpr int kAttendGroup = sizeof(attention::GroupShared<kWidth, kFormat>);

// Where the groups of a CTA have their shared memory. Base has units_at() and groups_at(), the 32-bit addresses of the
// first group's, and call(), which describes the attention. Asked for at each use (see attend_blocks).
template <int kWidth, KvFormat kFormat, class Base>
struct GroupMemory {
    Base base;
    using Shared = attention::GroupShared<kWidth, kFormat>;

    __device__ attention::UnitDescriptors& units() const {
        return *static_cast<attention::UnitDescriptors*>(
            __cvta_shared_to_generic(base.units_at() + within() * static_cast<std::uint32_t>(kAttendUnitBytes)));
    }
    __device__ Shared& shared() const {
        return *static_cast<Shared*>(
            __cvta_shared_to_generic(base.groups_at() + within() * static_cast<std::uint32_t>(sizeof(Shared))));
    }

    __device__ const AttendCall& call() const { return base.call(units()); }

private:
    static __device__ std::uint32_t within() { return thread_index() / (32 * attention::group_warps(kWidth)); }
};

// Of kernels that do nothing but attend: everything is at addresses that the compiler knows.
struct AttendMemory {
    const AttendCall& described;
    const char* units;
    const char* groups;
    __device__ const AttendCall& call(const attention::UnitDescriptors&) const { return described; }
    using Output = attention::OwnOutput;
    static __device__ std::uint32_t call_at(const AttendCall&) { return 0; }
    __device__ std::uint32_t units_at() const { return shared_address(units); }
    __device__ std::uint32_t groups_at() const { return shared_address(groups); }
};

// A CTA's units and merges of an attention, by its first 32 * group_warps(kWidth) * kGroups threads, which call it
// together. All CTAs of the launch call it. `layer`: in place of what the call has of one. `base`:
// kGroups times kAttendUnitBytes and kAttendGroup. kSpecial: also for trees and capped scores.
// Neighbouring units read the same keys or lie in the same pages, so groups on different multiprocessors find them in
// L2.
template <int kWidth, KvFormat kFormat, int kGroups, bool kSpecial, class Base, class Ready>
__device__ __forceinline__ void attend_group(const AttendCall& described, const AttendLayer& layer, const Base& base,
                                             const Ready& ready) {
    using namespace attention;
    using Form = KvFragmentForm<kWidth, kFormat>;
    constexpr int kWarps = group_warps(kWidth);
    using Group = GroupThread<kWarps>;
    const GroupMemory<kWidth, kFormat, Base> memory{base};
    const auto groups = [] { return kGroups * static_cast<std::int32_t>(gridDim.x); };
    {
        const Group group;
        UnitDescriptors& units = memory.units();
        if (group.warp == kWarps - 1) {
            if (group.lane == 0) {
                units.layer = layer;
                units.call = base.call_at(described);
                units.of[0].number = -1;
            }
            __syncwarp();
            if (UnitQueue(described, groups()).has(group.from_last())) {
                find_unit(described, layer.kv, groups(), group.from_last(), false, units.of[0]);
            }
        }
        group.meet();
    }
    KvFragments<kWidth, kFormat, kSpecial> runs;
    const auto load_first = [&](auto written) {
        const Group group;
        const UnitDescriptor& unit = memory.units().of[0];
        const AttendCall& c = memory.call();
        // K of this forward that the unit itself finishes: the first block is loaded at once, after that.
        const bool later = written.value == Written::before && unit.has_new_kv && c.raw != nullptr;
        if (unit.number >= 0 && !later) {
            runs.template load<written.value>(c, unit, unit.first_block, group.warp, group.lane);
        }
        return unit.number >= 0;
    };
    // Positions of earlier forwards can be loaded before ready(): this overlaps with the projections.
    bool some = load_first(std::integral_constant<Written, Written::before>());
    ready();
    // A group whose first unit is empty takes others, if there are more units than groups.
    if (!some) {
        const Group group;
        const AttendCall& c = memory.call();
        const UnitQueue queue(c, groups());
        if (queue.has(group.from_last()) && queue.more()) {
            group.meet();  // all know
            UnitDescriptors& units = memory.units();
            if (group.warp == kWarps - 1) find_unit(c, units.layer.kv, groups(), queue.take(), true, units.of[0]);
            group.meet();
            some = load_first(std::integral_constant<Written, Written::before>());
        }
    }
    // Returns whether there was something to write, and so new positions to load.
    const auto put_new_kv = [&](int current) {
        const AttendCall& c = memory.call();
        const UnitDescriptor& unit = memory.units().of[current];
        if (!unit.has_new_kv || !c.writes_kv()) return false;
        if (c.raw != nullptr) {
            if constexpr (!kSpecial) {
                store_new_heads<kWidth, kFormat>(c, unit, memory.units().layer.k_norm, Group());
            }
        } else if constexpr (Form::kCoded && !Form::kLow) {
            store_new_codes(c, unit, Group());
        }
        Group().meet();
        return true;
    };
    // Now the rest of the first block: positions of this forward, after they are written where that is left to us.
    if (some) {
        if (put_new_kv(0) && memory.call().raw != nullptr) {
            load_first(std::integral_constant<Written, Written::ever>());
        } else {
            load_first(std::integral_constant<Written, Written::now>());
        }
    }
#pragma unroll 1
    for (int current = 0, first = 1; some; current ^= 1, first = 0) {
        if (first == 0 && put_new_kv(current)) {
            const Group group;
            const UnitDescriptor& unit = memory.units().of[current];
            runs.template load<Written::ever>(memory.call(), unit, unit.first_block, group.warp, group.lane);
        }
        std::int32_t number = 0;  // of the next unit, which the last warp takes
        if (Group().warp == kWarps - 1) number = UnitQueue(memory.call(), groups()).take();
        const auto find_next = [&] {
            if (Group().warp != kWarps - 1) return;
            UnitDescriptors& units = memory.units();
            find_unit(memory.call(), units.layer.kv, groups(), number, true, units.of[current ^ 1]);
        };
        const auto here = [&]() -> const UnitDescriptor& { return memory.units().of[current]; };
        // A unit of one block has no time to look the next one up in between.
        if (here().first_block + 1 == here().end_block) find_next();
        const auto with_columns = [&](auto columns) {
            constexpr int kColumns = columns;
            if (!kSpecial && memory.call().raw != nullptr) {
                store_finished_queries<Form, kWidth, kColumns>(memory.call(), here().tile, memory.units().layer.q_norm,
                                                               memory.shared(), Group());
            } else {
                store_queries<Form, kWidth, kColumns>(memory.call(), here().tile, memory.shared(), Group().thread());
            }
            Group().meet();
            Softmax<kColumns> state;
            attend_blocks<kWidth, kFormat, kSpecial, kColumns>(memory, current, runs, state, find_next);
            store_rows<Form, kWidth, kColumns, typename Base::Output>(memory.call(), here(), memory.units().layer.out,
                                                                      memory.units().layer.sinks, memory.shared(),
                                                                      Group(), state);
        };
        if (here().tile.used() <= 8) {
            with_columns(std::integral_constant<int, 1>());
        } else {
            with_columns(std::integral_constant<int, 2>());
        }
        some = memory.units().of[current ^ 1].number >= 0;
        Group().meet();  // all are done with this unit
    }
    // No unit is left for this group.
    merge_rows<typename Base::Output, kWidth, kWarps>(memory.call(), memory.units().layer.out,
                                                      memory.units().layer.sinks, memory.shared(), Group(), groups());
}

}  // namespace foresay::kernels::cuda
