// kernels/cuda/attention/flash_supply.cuh: where flash attention of decode rows (flash_decode.cu) has its blocks from:
// how the warps of a CTA and its shared memory are divided, which units a team takes, and how their pages come into its
// ring.
//
// Team:     kTeamWarps warps with a ring of kSlots slots, a block of positions each. The warps read a slot, and
//           the last one of them to release it brings the next block there (bring_block). So no warp is a producer.
// Supply:   what a team takes its next block from, in shared memory. One warp at a time uses it: the releases of a slot
//           order those that do.
// Waits:    slot, full: an mbarrier that completes with the bytes of the copy.
#pragma once

#include <algorithm>

#include "kernels/cuda/attention/merge_chunks.cuh"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/rowwise/heads.cuh"

namespace foresay::kernels::cuda::attention {

using std::int32_t;
using std::uint32_t;

inline constexpr int kFlashWarps = 8;          // of a CTA
inline constexpr int kRingBytes = 198 * 1024;  // for all slots of a CTA, at most
inline constexpr int kMostSlots = 8;           // of a team

// What shared memory holds, and how the warps of a CTA are divided.
template <int kWidth, KvFormat kFormat, int kSetTiles>
struct FlashForm : KvFragmentForm<kWidth, kFormat> {
    using Base = KvFragmentForm<kWidth, kFormat>;
    static_assert(Base::kBlock == 8 * group_warps(kWidth) * Base::kEights);
    static constexpr int kPieceBytes = Base::kCoded ? KvCodes::bytes(kWidth) : 4 * kPagePositions * kWidth;
    static constexpr int kSlotBytes = Base::kBlockPages * kPieceBytes;
    static constexpr int kTeams = 2, kTeamWarps = 4, kSplit = kTeamWarps / kSetTiles;  // kSplit: warps of a tile
    static constexpr int kSlots = std::min(kMostSlots, kRingBytes / (kTeams * kSlotBytes));
    static_assert(kTeams * kTeamWarps == kFlashWarps && kPieceBytes % 128 == 0);
    // Strips of the positions whose values come in one load.
    static constexpr int kRun = Base::kValueRun, kStrip = 4 * kRun, kStripTiles = kRun / 2;
    static constexpr int kPageStrips = kPagePositions / kStrip, kPageTiles = kPagePositions / 8;

    // Of the mma of scores of a block a warp has kMine, those of part `part`. The l-th is the n-th of a page, and its
    // positions begin at part_position + mma_position (of column 0). With runs of 16 and four warps a warp has two
    // neighbours of each half of a page, because their sums meet.
    static constexpr int kMine = Base::kBlock / 8 / kSplit;
    static constexpr bool kHalves = kRun == 16 && kSplit == 4;
    static __device__ int part_page(int part) { return Base::kBlockPages == 1 ? 0 : part / (kSplit == 4 ? 2 : 1); }
    static constexpr __device__ int mma_page(int l) { return kSplit == 1 ? l / kPageTiles : 0; }
    static __device__ int mma_number(int part, int l) {
        if constexpr (kHalves) return l / 2 * 4 + part % 2 * 2 + l % 2;
        return (part * kMine + l) % kPageTiles;
    }
    static __device__ int part_position(int part) {
        if constexpr (kHalves) return 4 * (part % 2);
        const int n = part * kMine % kPageTiles;
        return kStrip * (n / kStripTiles) + 2 * (n % kStripTiles);
    }
    static constexpr __device__ int mma_position(int l) {
        if constexpr (kHalves) return 8 * (l / 2) + 2 * (l % 2);
        return kStrip * (l % kPageTiles / kStripTiles) + 2 * (l % kPageTiles % kStripTiles);
    }
    // Partial sums of a row in a lane (Order above): of all warps of the tile, and of one.
    static constexpr bool kPairedLanes = Base::kCoded && kRun == 8;  // an eight's lanes have one sum in two lanes
    static constexpr int kAllSums = Base::kBlock / 8 / (kPairedLanes ? 1 : Base::kEights), kSums = kAllSums / kSplit;

    // What the warps of a tile exchange.
    struct Exchange {
        float peaks[kTileRows][4];  // by part
        union {
            uint2 weights[2][Base::kBlock / 16][32];   // operands B of each eight of rows, of two mma of scores
            float halves[kTileRows][4][kAllSums / 2];  // sums of two neighbouring lanes
        };
    };
    struct NoExchange {};

    // What a slot has. block -1: there are no more units.
    struct SlotInfo {
        int32_t block, end_block;  // of the unit
        int32_t chunk, head_tile;
        int32_t first_tile, tiles;
    };
    struct Merge {  // of two rows by turns
        float2 peak_and_sum[2][kMergeShares];
        float out[2][kMergeShares][kWidth];
    };
    struct Shared {
        union {
            unsigned char slots[kTeams][kSlots][kSlotBytes];
            Merge merge;
        };
        std::conditional_t<(kSplit > 1), Exchange, NoExchange> exchange[kTeams * kSetTiles];
        std::uint64_t full[kTeams][kSlots];
        SlotInfo info[kTeams][kSlots];
        uint32_t readers[kTeams][kSlots];  // how many warps have read a slot, so far
        // Where a team's blocks come from. Used by one warp at a time.
        struct {
            SlotInfo unit;  // block: the next one to bring
            int32_t next_unit, slot;
            int32_t begin, list, committed, end_position;
            int32_t pages[kMaxChunkPositions / kPagePositions];  // from block `begin` on
            const __half* base;                                  // of the key-value head
        } supply[kTeams];
        int32_t sets;
        std::uint16_t first_tile[kMostFlashTiles + 1];  // of each set, and the end of the last one
    };
};

// For a set of tiles, or for one: which blocks of a chunk it attends to.
struct ChunkSpan {
    int32_t first_chunk, last_chunk;
    int32_t least, end;  // positions
    __device__ ChunkSpan(const AttendCall& c, const TileState& first, const TileState& last)
        : least(c.window > 0 ? max(0, first.lowest - c.window + 1) : 0), end(last.highest + 1) {
        first_chunk = chunk_of(least, c.block_shift);
        last_chunk = chunk_of(end - 1, c.block_shift);
    }
    __device__ int32_t first_block(const AttendCall& c, int32_t chunk) const {
        return max(chunk_begin(chunk, c.block_shift), least) >> c.block_shift;
    }
    __device__ int32_t end_block(const AttendCall& c, int32_t chunk) const {
        return (min(chunk_begin(chunk + 1, c.block_shift), end) + (1 << c.block_shift) - 1) >> c.block_shift;
    }
};

// Finds the sets: up to kTiles neighbouring tiles of one sequence each. By one warp.
template <int kTiles, class Shared>
__device__ void find_sets(const AttendCall& c, Shared& shared) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    int32_t sets = 0, before = -1, carried = 0;  // pages of the last tile so far, and how many tiles have had them
    for (int32_t from = 0; from < c.tiles; from += 32) {
        const int32_t tile = from + lane;
        const bool exists = tile < c.tiles;
        const int32_t pages = exists ? c.batch.tiles[tile].pages : -1;
        const int32_t left = __shfl_up_sync(~0u, pages, 1);
        const unsigned starts = __ballot_sync(~0u, pages != (lane == 0 ? before : left));
        const unsigned up_to_here = starts & (~0u >> (31 - lane));
        const int32_t within = up_to_here != 0 ? lane - (31 - __clz(up_to_here)) : carried + lane;
        const bool leads = exists && within % kTiles == 0;
        const unsigned leaders = __ballot_sync(~0u, leads);
        if (leads) shared.first_tile[sets + __popc(leaders & ((1u << lane) - 1))] = static_cast<std::uint16_t>(tile);
        sets += __popc(leaders);
        before = __shfl_sync(~0u, pages, 31);
        carried = __shfl_sync(~0u, within, 31) + 1;
    }
    if (lane == 0) {
        shared.first_tile[sets] = static_cast<std::uint16_t>(c.tiles);
        shared.sets = sets;
    }
}

// Where a warp is in its team's ring.
struct RingPlace {
    int slot = 0;
    uint32_t parity = 0;
    __device__ void advance(int slots) {
        if (++slot < slots) return;
        slot = 0;
        parity ^= 1;
    }
};

// Takes the next unit for a team. By one warp.
template <class Form, class Shared>
__device__ void take_unit(const AttendCall& c, Shared& shared, int team) {
    auto& from = shared.supply[team];
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int32_t units = shared.sets * c.head_tiles * c.chunks;
    const auto teams = Form::kTeams * static_cast<int32_t>(gridDim.x);
    int32_t u = from.next_unit;
    for (;; u = -1) {
        if (u < 0) {
            // The counter is that of the launches before, so it is not touched before they are done.
            await_predecessors();
            if (lane == 0 && units > teams) u = atomicAdd(c.taken, 1);
            u = units > teams ? __shfl_sync(~0u, u, 0) + teams : units;
        }
        if (u >= units) break;
        const int32_t rest = u / shared.sets, set = u - rest * shared.sets;
        const int32_t rank = rest / c.head_tiles, head_tile = rest - rank * c.head_tiles;
        const int32_t first_tile = shared.first_tile[set], tiles = shared.first_tile[set + 1] - first_tile;
        const TileState first = c.batch.tiles[first_tile];
        const ChunkSpan span(c, first, c.batch.tiles[first_tile + tiles - 1]);
        const int32_t chunk = span.last_chunk - rank;
        if (chunk < span.first_chunk) continue;
        const int32_t begin = span.first_block(c, chunk), end = span.end_block(c, chunk);
        const int32_t page = begin * Form::kBlockPages + lane;
        static_assert(kMaxChunkPositions / kPagePositions <= 32);
        __syncwarp();  // all have read `from`
        if (page * kPagePositions < span.end) from.pages[lane] = c.batch.lists[first.pages + page];
        if (lane == 0) {
            from.unit = {begin, end, chunk, head_tile, first_tile, tiles};
            from.begin = begin;
            from.list = first.pages;
            from.committed = first.committed;
            from.end_position = span.end;
            from.base = c.kv + quotient_by(head_tile, c.tiles_per_head_inverse) * c.layout.head_stride;
            from.next_unit = -1;
        }
        __syncwarp();
        return;
    }
    // There is none. The last team leaves the counters as they were.
    __syncwarp();
    if (lane == 0) {
        from.unit.block = -1;
        if (units > teams && atomicAdd(c.taken + 1, 1) == teams - 1) {
            __stcg(c.taken, 0);
            __stcg(c.taken + 1, 0);
        }
    }
    __syncwarp();
}

// Writes K and V of the forward's own positions of a block into the cache, as codes. By one warp. Every team that reads
// them writes them for itself; all write the same bytes.
template <class Form, int kWidth, class Supply>
__device__ void store_codes_of_rows(const AttendCall& c, const Supply& from) {
    constexpr int kAtOnce = 4;  // rows whose values are in flight
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int32_t values = c.kv_heads * c.head_dim;  // of K, and of V
    const int32_t kv_head = quotient_by(from.unit.head_tile, c.tiles_per_head_inverse);
    const int32_t first = from.unit.block * Form::kBlock, end = min(first + Form::kBlock, from.end_position);
#pragma unroll 1
    for (int32_t base = 0; base < c.rows; base += 32) {
        int32_t position = -1;  // of row base + lane, if it is in the block
        if (base + lane < c.rows) {
            const RowState row = c.batch.rows[base + lane];
            if (row.pages == from.list && row.position >= first && row.position < end) position = row.position;
        }
        unsigned left = __ballot_sync(~0u, position >= 0);
#pragma unroll 1
        while (left != 0) {
            int row[kAtOnce];
            float value[kAtOnce][2][kWidth / 32];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                row[i] = __ffs(static_cast<int>(left)) - 1;
                left &= left - 1;
#pragma unroll
                for (int k = 0; k < 2 * kWidth / 32; ++k) {
                    const int32_t which = k / (kWidth / 32), d = lane + 32 * (k % (kWidth / 32));
                    if (row[i] < 0 || d >= c.head_dim) continue;
                    const std::int64_t at = 2 * (base + row[i]) + which;
                    value[i][which][k % (kWidth / 32)] = __ldcg(c.new_kv + at * values + kv_head * c.head_dim + d);
                }
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                if (row[i] < 0) continue;
                const int32_t p = __shfl_sync(~0u, position, row[i]);
                const int32_t page = from.pages[p / kPagePositions - from.begin * Form::kBlockPages];
                auto* const to = const_cast<__half*>(from.base) + page * c.layout.page_stride;
#pragma unroll
                for (int which = 0; which < 2; ++which) {
                    store_codes<kWidth>(to, kWidth, p % kPagePositions, which == 1, c.head_dim, lane, [&](int32_t d) {
                        const int32_t k = (d - lane) / 32;
                        return k < kWidth / 32 ? value[i][which][k] : 0.0f;
                    });
                }
            }
        }
    }
    __threadfence();
}

// Brings the next block of a team into its ring, or the news that there is none. By one warp, when all warps of the
// team have read what the slot had.
template <class Form, class Shared>
__device__ void bring_block(const AttendCall& c, Shared& shared, int team) {
#if __CUDA_ARCH__ >= 900
    auto& from = shared.supply[team];
    if (from.unit.block < 0) return;  // said already
    if (from.unit.block == from.unit.end_block) take_unit<Form>(c, shared, team);
    const typename Form::SlotInfo unit = from.unit;
    const int slot = from.slot;
    const uint32_t full = shared_address(&shared.full[team][slot]);
    const bool leads = threadIdx.x % 32 == 0;
    if (unit.block >= 0 && (unit.block + 1) * Form::kBlock > from.committed) {
        await_predecessors();
        if (Form::kCoded && c.new_kv != nullptr) store_codes_of_rows<Form, Form::kValuesAt / kPagePositions>(c, from);
        // What was written by plain stores is read by bulk copies.
        asm volatile("fence.proxy.async;" ::: "memory");
    }
    __syncwarp();  // all have read `from`
    if (leads) {
        shared.info[team][slot] = unit;
        from.slot = slot + 1 < Form::kSlots ? slot + 1 : 0;
        if (unit.block < 0) {
            mbarrier_arrive(full);
        } else {
            from.unit.block = unit.block + 1;
            const int32_t first = unit.block * Form::kBlockPages;
            const int32_t exist = (from.end_position + kPagePositions - 1) / kPagePositions - first;
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full),
                         "r"(min(exist, Form::kBlockPages) * Form::kPieceBytes)
                         : "memory");
#pragma unroll
            for (int i = 0; i < Form::kBlockPages; ++i) {
                if (i >= exist) break;
                const int32_t page = from.pages[first + i - from.begin * Form::kBlockPages];
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                        shared_address(&shared.slots[team][slot][i * Form::kPieceBytes])),
                    "l"(from.base + page * c.layout.page_stride), "r"(Form::kPieceBytes), "r"(full)
                    : "memory");
            }
        }
    }
    __syncwarp();
#endif
}

// A warp of a team has read the slot where it is. The last one to say so has the next block brought there.
template <class Form, class Shared>
__device__ __forceinline__ void release(const AttendCall& c, Shared& shared, int team, RingPlace& at) {
    __syncwarp();
    uint32_t before = 0;
    if (threadIdx.x % 32 == 0) {
        asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], 1;"
                     : "=r"(before)
                     : "r"(shared_address(&shared.readers[team][at.slot]))
                     : "memory");
    }
    before = __shfl_sync(~0u, before, 0);
    // The count goes on: the whole team has read it once more.
    if (before % Form::kTeamWarps == Form::kTeamWarps - 1) bring_block<Form>(c, shared, team);
    at.advance(Form::kSlots);
}

}  // namespace foresay::kernels::cuda::attention
