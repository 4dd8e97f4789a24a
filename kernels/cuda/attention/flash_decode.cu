// Attention of decode rows after long contexts: one launch per layer, keys and values through shared memory, read once
// for up to 64 (row, query head) pairs of a sequence.
//
// Unit:     (set, head tile, chunk): up to kSetTiles neighbouring tiles of one sequence against the keys of one chunk.
//           A team of kSetTiles warps works on it, one tile each. A CTA has two or three teams, which take units from a
//           counter. Each has a producer warp, or its own warps bring what is next where no warp is left for that.
//
// Data flow of a block of 64 positions (128 of codes), per team:
//
//   K and V  global --cp.async.bulk--> slot of the team's ring               (produce; a page is one copy)
//   scores   Q . K^T by mma: Q in registers for the whole unit, K from the slot as the page has it, one lane's
//            operands in 16 bytes
//   softmax  in registers; the four lanes of a quad exchange the peak by shuffles
//   output   V^T . P^T by mma: the sums of the scores, packed to float16, already are operand B
//
// A warp meets no other from the beginning of a unit to its end, only the barriers of the ring. Then each warp leaves
// (peak, sum, output) of its tile in flagged words, and the CTA merges rows when it has no units left
// (merge_chunks.cuh).
//
// Order:    bit for bit that of attend_group() (decode_attention.cuh), which spreads a tile over 8 warps. Scores: two
//           sums, of the even and the odd mma, then added. Weights: a partial sum for every pair of neighbouring
//           positions of eight (eights of 64 positions, kEights of 128), which stands for a lane of a warp there;
//           added in the order of its lanes and warps when the unit ends. Outputs: one sum over all positions.
// Columns:  column q of the n-th mma of scores is position run (q / 2) + 2 n + q % 2 of its strip of 4 run positions.
//           So a lane gets the scores of `run` neighbouring positions, those whose values it has in one load of V.
// Waits:    slot, full: the team waits for the copy. Slot, empty: the producer waits for the team's warps. Positions of
//           earlier forwards are copied before the predecessors on the stream are done; all else comes after.
// Sinks:    belong to where a row is divided by its sum: the end of attend_unit() for rows of one chunk, else of
//           merge_row(). can_flash_decode() must say no until both are there.
// Registers: 255, so eight warps: a ninth would have a third less.
// Breaks:   a grid that is not resident as a whole hangs in the merge. Hence one CTA per multiprocessor.
// Cost:     reads K and V once per set. A warp takes some 2,000 cycles for 64 positions.

#include "kernels/cuda/attention/flash_decode.h"

#include <algorithm>

#include "kernels/cuda/attention/merge_chunks.cuh"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"

namespace foresay::kernels::cuda {
namespace {

using attention::kLog2e;
using attention::minus_infinity;
using attention::pack;
using attention::Partial;
using attention::power_of_two;
using attention::reciprocal;
using attention::Tile;
using attention::worth;
using std::int32_t;
using std::uint32_t;

constexpr int kFlashWarps = 8;          // of a CTA
constexpr int kRingBytes = 203 * 1024;  // for all slots of a CTA, at most
constexpr int kMostSlots = 8;           // of a team

// What shared memory holds, and how the warps of a CTA are divided.
template <int kWidth, KvFormat kFormat, int kSetTiles>
struct FlashForm : attention::KvFragmentForm<kWidth, kFormat> {
    using Base = attention::KvFragmentForm<kWidth, kFormat>;
    static_assert(Base::kBlock == 8 * attention::group_warps(kWidth) * Base::kEights);
    static constexpr int kPieceBytes = Base::kCoded ? KvCodes::bytes(kWidth) : 4 * kPagePositions * kWidth;
    static constexpr int kSlotBytes = Base::kBlockPages * kPieceBytes;
    static constexpr int kTeams = kSetTiles == 1 && Base::kCoded ? 3 : 2;
    static constexpr int kSlots = std::min(kMostSlots, kRingBytes / (kTeams * kSlotBytes));
    // More than eight warps would halve the registers of each. Where no warp is left to be a producer, the team's own
    // warps bring their blocks.
    static constexpr int kTeamWarps = kSetTiles, kWorkers = kTeams * kTeamWarps;
    static constexpr bool kProducers = kWorkers + kTeams <= kFlashWarps;
    static_assert(kWorkers <= kFlashWarps && kPieceBytes % 128 == 0);
    // Strips of the positions whose values come in one load.
    static constexpr int kRun = Base::kValueRun, kStrip = 4 * kRun, kStripTiles = kRun / 2;
    static constexpr int kPageStrips = kPagePositions / kStrip, kPageTiles = kPagePositions / 8;

    // What a slot has. block -1: there are no more units.
    struct SlotInfo {
        int32_t block, end_block;  // of the unit
        int32_t chunk, head_tile;
        int32_t first_tile, tiles;
    };
    struct Shared {
        unsigned char slots[kTeams][kSlots][kSlotBytes];
        struct {
            float2 merged_peak_and_sum[attention::kMergeShares];
            float merged[attention::kMergeShares][kWidth];
        } merge;
        std::uint64_t full[kTeams][kSlots], empty[kTeams][kSlots];
        SlotInfo info[kTeams][kSlots];
        uint32_t readers[kTeams][kSlots];  // without producers: how many warps have read a slot, so far
        // Where a team's blocks come from. Used by one warp at a time.
        struct {
            SlotInfo unit;  // block: the next one to bring
            int32_t next_unit, slot;
            int32_t begin, committed, end_position;
            int32_t pages[kMaxChunkPositions / kPagePositions];  // from block `begin` on
            const __half* base;                                  // of the key-value head
        } supply[kTeams];
        int32_t sets;
        std::uint16_t first_tile[kMostFlashTiles + 1];  // of each set, and the end of the last one
    };
};

// Of a set of tiles, or of one: which blocks of a chunk it attends to.
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

// d += a . b, without an order among others, so that the compiler mixes products and loads.
__device__ inline void product(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                               uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

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
        // What they have written by plain stores is read by bulk copies.
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

// A producer warp: keeps the ring of its team full.
template <class Form, class Shared>
__device__ void produce(const AttendCall& c, Shared& shared, int team) {
    RingPlace at;
    do {
        mbarrier_wait(shared_address(&shared.empty[team][at.slot]), at.parity ^ 1);
        bring_block<Form>(c, shared, team);
        at.advance(Form::kSlots);
    } while (shared.supply[team].unit.block >= 0);
}

// A warp of a team has read the slot where it is. Without a producer warp the last one to say so brings what is next.
template <class Form, class Shared>
__device__ __forceinline__ void release(const AttendCall& c, Shared& shared, int team, RingPlace& at) {
    if constexpr (Form::kProducers) {
        mbarrier_arrive_warp(shared_address(&shared.empty[team][at.slot]));
    } else {
        __syncwarp();
        uint32_t before = 0;
        if (threadIdx.x % 32 == 0) {
            asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], 1;"
                         : "=r"(before)
                         : "r"(shared_address(&shared.readers[team][at.slot]))
                         : "memory");
        }
        before = __shfl_sync(~0u, before, 0);
        // The count goes on: whole teams have read it once more.
        if (before % Form::kTeamWarps == Form::kTeamWarps - 1) bring_block<Form>(c, shared, team);
    }
    at.advance(Form::kSlots);
}

// The softmax of a warp's rows between blocks. Operand rows 8 n + quad; outputs of operand rows 8 n + 2 place + {0, 1}:
// value 16 j + quad, then 8 further.
template <class Form, int kColumns>
struct Softmax {
    static constexpr int kSums = Form::kCoded && Form::kRun == 8 ? Form::kBlock / 8 : Form::kBlock / 8 / Form::kEights;
    float peak[kColumns];
    float sum[kColumns][kSums];  // of the lanes that attend_group() would have
    float out[Form::kTiles][kColumns][4];
    __device__ Softmax() {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            peak[n] = minus_infinity();
#pragma unroll
            for (float& s : sum[n]) s = 0.0f;
#pragma unroll
            for (int j = 0; j < Form::kTiles; ++j) {
#pragma unroll
                for (float& value : out[j][n]) value = 0.0f;
            }
        }
    }
    // The sum of all positions of operand row 8 n + quad: lanes of a warp first, then the warps in order.
    __device__ float total(int n, int place, int lane) const {
        float whole = 0.0f;
        constexpr int kGroups = kSums / 4;  // of four lanes
#pragma unroll
        for (int h = 0; h < kGroups; ++h) {
            const float* s = &sum[n][4 * h];
            const float warp = (s[0] + s[1]) + (s[2] + s[3]);
            // Lane `place` has warp 4 h + place; where two lanes share an eight, warp 2 h + place / 2.
            constexpr int kStep = Form::kCoded && Form::kRun == 8 ? 2 : 1;
#pragma unroll
            for (int i = 0; i < 4; i += kStep) whole += __shfl_sync(~0u, warp, lane - place + i);
        }
        return whole;
    }
};

// A unit's blocks for one tile. The first block is in the ring already.
template <class Form, int kWidth, int kColumns, class Shared>
__device__ __forceinline__ void attend_unit(const AttendCall& c, Shared& shared, int team, RingPlace& at,
                                            const typename Form::SlotInfo& unit, int32_t tile_index, const Tile& tile,
                                            const ChunkSpan& span) {
    using Entry = typename Form::Entry;
    constexpr bool kCoded = Form::kCoded;
    constexpr int kRun = Form::kRun, kKeySteps = Form::kKeyRun / 4, kValueSteps = kRun / 4;
    const int lane = static_cast<int>(threadIdx.x % 32), quad = lane / 4, place = lane % 4;
    uint32_t q[kWidth / 16][2 * kColumns];
    int32_t from[kColumns], to[kColumns];  // positions that operand row 8 n + quad attends to
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
        const int32_t r = 8 * n + quad;
        const bool valid = tile.valid(r);
        to[n] = valid ? c.batch.rows[tile.row(r)].position : -1;
        from[n] = c.window > 0 ? to[n] - c.window + 1 : 0;
        const float* const values = c.q + (valid ? tile.values(c, r) : 0);
#pragma unroll
        for (int s = 0; s < kWidth / 16; ++s) {
            const int32_t d = Form::value_of(s, place);
            float4 four = {};
            if (valid && d < c.head_dim) four = __ldcg(reinterpret_cast<const float4*>(values + d));
            q[s][n] = pack(four.x, four.y);
            q[s][kColumns + n] = pack(four.z, four.w);
        }
    }
    const float factor = c.scale * (kCoded ? kLog2e / kLargestCode : kLog2e);
    const int32_t first_block = span.first_block(c, unit.chunk), end_block = span.end_block(c, unit.chunk);
    // Blocks that all rows attend to as a whole.
    const int32_t unmasked = c.window > 0 ? 0 : (tile.state.lowest + 1) >> c.block_shift;
    // This lane's part of every address in a page.
    const int key_at = Form::keys().key_place(kRun * (quad / 2) + quad % 2) + place * Form::kKeyRun;
    const int value_at = Form::kValuesAt + kRun * place + Form::values().value_value(quad);
    Softmax<Form, kColumns> state;

#pragma unroll 1
    for (int32_t block = unit.block;; ++block) {
        if (block >= first_block && block < end_block) {
            const auto* const slot = reinterpret_cast<const Entry*>(shared.slots[team][at.slot]);
            constexpr int kPiece = Form::kPieceBytes / static_cast<int>(sizeof(Entry));
            const int32_t pages = (span.end - block * Form::kBlock + kPagePositions - 1) / kPagePositions;
            // Scores of page i, mma column n: rows 8 m + quad, positions of this lane.
            float scores[Form::kBlockPages][Form::kPageTiles][2 * kColumns];
#pragma unroll
            for (int i = 0; i < Form::kBlockPages; ++i) {
                if (i > 0 && i >= pages) {  // does not exist, and is masked below
#pragma unroll
                    for (auto& some : scores[i]) {
                        for (float& score : some) score = 0.0f;
                    }
                    break;
                }
#pragma unroll
                for (int n = 0; n < Form::kPageTiles; ++n) {
                    const Entry* const key =
                        slot + i * kPiece + key_at +
                        Form::keys().key_place(Form::kStrip * (n / Form::kStripTiles) + 2 * (n % Form::kStripTiles));
                    float sums[2][4] = {};
#pragma unroll
                    for (int g = 0; g < Form::kKeys; ++g) {
                        const auto run = *reinterpret_cast<const typename Form::KeyRun*>(key + g * 32 * Form::kKeyRun);
#pragma unroll
                        for (int s = 0; s < kKeySteps; ++s) {
                            const uint32_t(&a)[2 * kColumns] = q[g * kKeySteps + s];
                            const uint2 k = Form::four(run, s);
                            if constexpr (kColumns == 1) {
                                product(sums[s % 2], a[0], 0, a[1], 0, k.x, k.y);
                            } else {
                                product(sums[s % 2], a[0], a[1], a[2], a[3], k.x, k.y);
                            }
                        }
                    }
#pragma unroll
                    for (int k = 0; k < 2 * kColumns; ++k) scores[i][n][k] = sums[0][k] + sums[1][k];
                }
            }
            // The first of the two positions that this lane has of an mma.
            const auto position = [&](int i, int n) {
                return block * Form::kBlock + i * kPagePositions + Form::kStrip * (n / Form::kStripTiles) +
                       kRun * place + 2 * (n % Form::kStripTiles);
            };
            // Scales of K and V of two neighbouring positions of page i.
            const auto scales = [&](int i, int n) {
                const auto* const of = reinterpret_cast<const float4*>(
                    shared.slots[team][at.slot] + i * Form::kPieceBytes + KvCodes::scales(kWidth, 0));
                return of[(position(i, n) - block * Form::kBlock - i * kPagePositions) / 2];
            };
#pragma unroll
            for (int i = 0; i < Form::kBlockPages; ++i) {
                if (i > 0 && i >= pages) break;
#pragma unroll
                for (int n = 0; n < Form::kPageTiles; ++n) {
                    float4 scale = {1.0f, 1.0f, 1.0f, 1.0f};
                    if constexpr (kCoded) scale = scales(i, n);
#pragma unroll
                    for (int k = 0; k < 2 * kColumns; ++k) {
                        float& score = scores[i][n][k];
                        if constexpr (kCoded) score *= k % 2 == 0 ? scale.x : scale.z;
                        score *= factor;
                    }
                }
            }
            if (block >= unmasked) {
#pragma unroll
                for (int i = 0; i < Form::kBlockPages; ++i) {
#pragma unroll
                    for (int n = 0; n < Form::kPageTiles; ++n) {
                        const int32_t p = position(i, n);
#pragma unroll
                        for (int k = 0; k < 2 * kColumns; ++k) {
                            if (p + k % 2 < from[k / 2] || p + k % 2 > to[k / 2]) scores[i][n][k] = minus_infinity();
                        }
                    }
                }
            }
            float old[kColumns];
            uint32_t weights[Form::kBlockPages][Form::kPageTiles][kColumns];
#pragma unroll
            for (int m = 0; m < kColumns; ++m) {
                float top = minus_infinity();
#pragma unroll
                for (auto& page : scores) {
#pragma unroll
                    for (auto& two : page) top = fmaxf(top, fmaxf(two[2 * m], two[2 * m + 1]));
                }
                top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
                top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
                top = fmaxf(top, state.peak[m]);
                old[m] = worth(state.peak[m], top);
                state.peak[m] = top;
                const float zero = top == minus_infinity() ? 0.0f : top;  // nothing attended yet
                float here[Form::kBlockPages][Form::kPageTiles];
#pragma unroll
                for (int i = 0; i < Form::kBlockPages; ++i) {
#pragma unroll
                    for (int n = 0; n < Form::kPageTiles; ++n) {
                        float a = power_of_two(scores[i][n][2 * m] - zero),
                              b = power_of_two(scores[i][n][2 * m + 1] - zero);
                        here[i][n] = a + b;
                        if constexpr (kCoded) {
                            const float4 scale = scales(i, n);
                            a *= scale.y;
                            b *= scale.w;
                            // Of a page that does not exist the scales are anything.
                            if (i > 0 && i >= pages) a = b = 0.0f;
                        }
                        weights[i][n][m] = pack(a, b);
                    }
                }
                // Partial sums of attend_group(): its warp w has kEights neighbouring eights, its lane the pairs of
                // positions 2 p of each of them.
                constexpr int kSums = Softmax<Form, kColumns>::kSums;
#pragma unroll
                for (int s = 0; s < kSums; ++s) {
                    float added;
                    if constexpr (!kCoded) {
                        static_assert(kCoded || (Form::kEights == 1 && kRun == 8 && Form::kBlockPages == 1));
                        added = here[0][s];
                    } else if constexpr (kRun == 16) {
                        static_assert(!kCoded || Form::kEights == 2);
                        added = here[s / 4][s % 4] + here[s / 4][s % 4 + 4];
                    } else {
                        const float mine = here[s / Form::kPageTiles][s % Form::kPageTiles];
                        added = mine + __shfl_xor_sync(~0u, mine, 1);
                    }
                    state.sum[m][s] = fmaf(state.sum[m][s], old[m], added);
                }
            }
            // The outputs so far to the new peak, where it is new.
            bool same = true;
#pragma unroll
            for (int m = 0; m < kColumns; ++m) same = same && old[m] == 1.0f;
            if (!__all_sync(~0u, same)) {
#pragma unroll
                for (int m = 0; m < kColumns; ++m) {
                    const float first = __shfl_sync(~0u, old[m], place * 8),
                                second = __shfl_sync(~0u, old[m], place * 8 + 4);
#pragma unroll
                    for (int j = 0; j < Form::kTiles; ++j) {
#pragma unroll
                        for (int i = 0; i < 4; ++i) state.out[j][m][i] *= i % 2 == 0 ? first : second;
                    }
                }
            }
#pragma unroll
            for (int i = 0; i < Form::kBlockPages; ++i) {
                if (i > 0 && i >= pages) break;
#pragma unroll
                for (int h = 0; h < Form::kPageStrips; ++h) {
#pragma unroll
                    for (int j = 0; j < Form::kTiles; ++j) {
                        const Entry* const value = slot + i * kPiece + value_at +
                                                   Form::values().value_place(Form::kStrip * h) +
                                                   Form::values().value_value(16 * j);
                        const auto low = *reinterpret_cast<const typename Form::ValueRun*>(value);
                        const auto high = *reinterpret_cast<const typename Form::ValueRun*>(value + 32 * kRun);
#pragma unroll
                        for (int s = 0; s < kValueSteps; ++s) {
                            const uint2 l = Form::four(low, s), u = Form::four(high, s);
                            const int n = h * Form::kStripTiles + 2 * s;
#pragma unroll
                            for (int m = 0; m < kColumns; ++m) {
                                product(state.out[j][m], l.x, u.x, l.y, u.y, weights[i][n][m], weights[i][n + 1][m]);
                            }
                        }
                    }
                }
            }
        }
        release<Form>(c, shared, team, at);
        if (block + 1 == unit.end_block) break;
        mbarrier_wait(shared_address(&shared.full[team][at.slot]), at.parity);
    }

    // Leaves the rows: divided by their sums where the tile has this chunk only, else for the merge.
    if constexpr (kCoded) {
#pragma unroll
        for (auto& tile_out : state.out) {
#pragma unroll
            for (auto& column : tile_out) {
                for (float& value : column) value *= 1.0f / kLargestCode;
            }
        }
    }
    const auto each_value = [&](const auto& put) {
#pragma unroll
        for (int m = 0; m < kColumns; ++m) {
#pragma unroll
            for (int e = 0; e < 2; ++e) {
                const int32_t r = 8 * m + 2 * place + e;
                if (!tile.valid(r)) continue;
#pragma unroll
                for (int j = 0; j < Form::kTiles; ++j) {
                    put(m, e, r, 16 * j + quad, state.out[j][m][e]);
                    put(m, e, r, 16 * j + quad + 8, state.out[j][m][2 + e]);
                }
            }
        }
    };
    float sum[kColumns];
#pragma unroll
    for (int m = 0; m < kColumns; ++m) sum[m] = state.total(m, place, lane);
    if (span.first_chunk == span.last_chunk) {
        float factors[kColumns][2];
#pragma unroll
        for (int m = 0; m < kColumns; ++m) {
            factors[m][0] = reciprocal(__shfl_sync(~0u, sum[m], place * 8));
            factors[m][1] = reciprocal(__shfl_sync(~0u, sum[m], place * 8 + 4));
        }
        each_value([&](int m, int e, int32_t r, int32_t d, float value) {
            if (d < c.head_dim) c.out[tile.values(c, r) + d] = value * factors[m][e];
        });
        return;
    }
    Partial<kWidth>& partial = reinterpret_cast<Partial<kWidth>*>(
        c.partial)[(static_cast<std::int64_t>(tile_index) * c.head_tiles + unit.head_tile) * c.chunks + unit.chunk];
    each_value([&](int, int, int32_t r, int32_t d, float value) { __stcg(&partial.out[r][d], value); });
    if (place == 0) {
#pragma unroll
        for (int m = 0; m < kColumns; ++m) {
            if (tile.valid(8 * m + quad)) {
                __stcg(&partial.peak_and_sum[8 * m + quad], float2{state.peak[m], sum[m]});
            }
        }
    }
}

// A warp's tile of each unit of its team.
template <class Form, int kWidth, class Shared>
__device__ void attend(const AttendCall& c, Shared& shared, int team, int in_team) {
    RingPlace at;
    for (;;) {
        mbarrier_wait(shared_address(&shared.full[team][at.slot]), at.parity);
        const typename Form::SlotInfo unit = shared.info[team][at.slot];
        if (unit.block < 0) return;
        const int32_t index = unit.first_tile + min(in_team, unit.tiles - 1);
        const Tile tile(c, index, unit.head_tile);
        const ChunkSpan span(c, tile.state, tile.state);
        if (in_team < unit.tiles && span.first_chunk <= unit.chunk && unit.chunk <= span.last_chunk) {
            if (tile.used() <= 8) {
                attend_unit<Form, kWidth, 1>(c, shared, team, at, unit, index, tile, span);
            } else {
                attend_unit<Form, kWidth, 2>(c, shared, team, at, unit, index, tile, span);
            }
            continue;
        }
        // No row of this warp's is in the chunk.
        for (int32_t block = unit.block;;) {
            release<Form>(c, shared, team, at);
            if (++block == unit.end_block) break;
            mbarrier_wait(shared_address(&shared.full[team][at.slot]), at.parity);
        }
    }
}

template <int kWidth, KvFormat kFormat, int kSetTiles>
__global__ void __launch_bounds__(32 * kFlashWarps, 1) flash_kernel(const __grid_constant__ AttendCall c) {
    using Form = FlashForm<kWidth, kFormat, kSetTiles>;
    using Shared = typename Form::Shared;
    extern __shared__ __align__(128) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const int warp = static_cast<int>(threadIdx.x / 32);
    allow_successor();
    if (threadIdx.x == 0) {
        for (int team = 0; team < Form::kTeams; ++team) {
            for (int slot = 0; slot < Form::kSlots; ++slot) {
                mbarrier_init(shared_address(&shared.full[team][slot]), 1);
                mbarrier_init(shared_address(&shared.empty[team][slot]), Form::kTeamWarps * kWarpArrivals);
                shared.readers[team][slot] = 0;
            }
            auto& supply = shared.supply[team];
            supply.unit = {};
            supply.slot = 0;
            // Neighbouring units lie in the same pages, so they go to different multiprocessors.
            supply.next_unit = static_cast<int32_t>(team * gridDim.x + blockIdx.x);
        }
#if __CUDA_ARCH__ >= 900
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    }
    if (warp == 1) find_sets<kSetTiles>(c, shared);
    __syncthreads();
    // Warps of a team are on different schedulers.
    const int team = warp / kSetTiles, in_team = warp % kSetTiles;
    if (warp < Form::kWorkers) {
        if (!Form::kProducers && in_team == 0) {
            for (int i = 0; i < Form::kSlots; ++i) bring_block<Form>(c, shared, team);
        }
        await_predecessors();
        attend<Form, kWidth>(c, shared, team, in_team);
    } else {
        if (Form::kProducers && warp < Form::kWorkers + Form::kTeams) {
            produce<Form>(c, shared, warp - Form::kWorkers);
        }
        await_predecessors();
    }
    const attention::GroupThread<kFlashWarps> group;
    group.meet();  // warps without units wait here instead of polling
    attention::merge_rows<kWidth, kFlashWarps>(c, c.out, shared.merge, group, static_cast<int32_t>(gridDim.x));
}

// Calls body(width, format, tiles of a set) with constants.
template <class Body>
void with_flash_variant(const AttendCall& call, int32_t together, const Body& body) {
    const auto with_tiles = [&](auto width, auto format) {
        if (together <= 1) {
            body(width, format, std::integral_constant<int, 1>());
        } else if (together == 2) {
            body(width, format, std::integral_constant<int, 2>());
        } else {
            body(width, format, std::integral_constant<int, 4>());
        }
    };
    const auto with_format = [&](auto width) {
        if (call.layout.format == KvFormat::q8) {
            with_tiles(width, std::integral_constant<KvFormat, KvFormat::q8>());
        } else {
            with_tiles(width, std::integral_constant<KvFormat, KvFormat::f16>());
        }
    };
    if (call.layout.width == 64) {
        with_format(std::integral_constant<int, 64>());
    } else {
        with_format(std::integral_constant<int, 128>());
    }
}

}  // namespace

bool can_flash_decode(const AttendCall& call, const DeviceInfo& device) {
    if (call.tree || call.soft_cap > 0 || call.tiles > kMostFlashTiles) return false;
    if (call.layout.width != 64 && call.layout.width != 128) return false;
    // The largest variant's.
    return device.capability >= 90 && device.shared_bytes >= kRingBytes + 12 * 1024;
}

void launch_flash_decode(cudaStream_t stream, const AttendCall& call, int32_t together) {
    int device = 0, processors = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    cuda_check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
               "cannot ask for the number of multiprocessors");
    with_flash_variant(call, together, [&](auto width, auto format, auto tiles) {
        using Form = FlashForm<width, format, tiles>;
        static_assert(sizeof(typename Form::Shared) <= kRingBytes + 12 * 1024);
        launch_overlapping("attention", flash_kernel<width, format, tiles>, dim3(static_cast<unsigned>(processors)),
                           32 * kFlashWarps, static_cast<int>(sizeof(typename Form::Shared)), stream, call);
    });
}

}  // namespace foresay::kernels::cuda
