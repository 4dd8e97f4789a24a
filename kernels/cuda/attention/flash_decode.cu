// Attention of decode rows after long contexts: one launch per layer, keys and values through shared memory, read once
// for up to 64 (row, query head) pairs of a sequence.
//
// Unit:     (set, head tile, chunk): up to kSetTiles (1, 2 or 4) neighbouring tiles of one sequence against the keys of
//           one chunk. A team of four warps works on it: a warp for each tile, or two or four of them (kSplit). A CTA
//           has two teams, which take units from a counter.
//
// Data flow of a block of 64 positions (128 of codes), per team:
//
//   K and V  global --cp.async.bulk--> slot of the team's ring              (bring_block; a page is one copy)
//   scores   Q . K^T by mma: Q in registers for the whole unit, K from the slot as the page has it, one lane's
//            operands in 16 bytes
//   softmax  in registers; the four lanes of a quad exchange the peak by shuffles
//   output   V^T . P^T by mma: the sums of the scores, packed to float16, already are operand B
//
// Where several warps have a tile, each has a part of the block's keys and a part of the values of the head, and they
// exchange peaks and weights through shared memory. Then each tile leaves (peak, sum, output) in global memory, CTAs
// meet at a counter, and merge the rows (merge_rows).
//
// Order:    bit for bit that of attend_group() (decode_attention.cuh), which spreads a tile over 8 warps. Scores: two
//           sums, of the even and the odd mma, then added. Weights: a partial sum for every pair of neighbouring
//           positions of eight (eights of 64 positions, kEights of 128), which stands for a lane of a warp there;
//           added in the order of its lanes and warps when the unit ends. Outputs: one sum over all positions. Merge:
//           that of merge_row() (merge_chunks.cuh).
// Columns:  column q of the n-th mma of scores is position run (q / 2) + 2 n + q % 2 of its strip of 4 run positions.
//           So a lane gets the scores of `run` neighbouring positions, those whose values it has in one load of V.
// Waits:    slot, full: the team waits for the copy. The last warp of a team that has read a slot has the next block
//           brought there. Positions of earlier forwards are copied before the predecessors on the stream are done; all
//           else comes after.
// Sinks:    belong to where a row is divided by its sum: the end of attend_unit() for rows of one chunk, else of
//           merge_rows().
// Registers: 255, so eight warps: a ninth would have a third less.
// Breaks:   a grid that is not resident as a whole hangs before the merge. Hence one CTA per multiprocessor.
// Cost:     reads K and V once per set.

#include "kernels/cuda/attention/flash_decode.h"

#include <algorithm>

#include "kernels/cuda/attention/flash_supply.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/probe.h"

namespace foresay::kernels::cuda {
namespace {

using attention::bring_block;
using attention::ChunkSpan;
using attention::find_sets;
using attention::FlashForm;
using attention::kFlashWarps;
using attention::kLog2e;
using attention::kRingBytes;
using attention::minus_infinity;
using attention::pack;
using attention::Partial;
using attention::power_of_two;
using attention::reciprocal;
using attention::release;
using attention::RingPlace;
using attention::Tile;
using attention::UnitIndex;
using attention::worth;
using std::int32_t;
using std::uint32_t;

// The partial results of a tile and head tile, by chunk.
template <int kWidth>
__device__ Partial<kWidth>* chunks_of(const AttendCall& c, int32_t tile, int32_t head_tile) {
    return reinterpret_cast<Partial<kWidth>*>(c.partial) +
           (static_cast<std::int64_t>(tile) * c.head_tiles + head_tile) * c.chunks;
}

// d += a . b, without an order among others, so that the compiler mixes products and loads.
__device__ inline void product(float (&d)[4], uint32_t a0, uint32_t a1, uint32_t a2, uint32_t a3, uint32_t b0,
                               uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

// Meets the other warps of a tile.
template <class Form>
__device__ inline void meet_tile(int tile) {
    if constexpr (Form::kSplit > 1) {
        asm volatile("bar.sync %0, %1;" ::"r"(2 + tile), "n"(32 * Form::kSplit) : "memory");
    }
}

// The softmax of a warp's rows between blocks. Operand rows 8 n + quad; outputs of operand rows 8 n + 2 place + {0, 1}:
// value 16 j + quad of the warp's part, then 8 further.
template <class Form, int kColumns>
struct Softmax {
    static constexpr int kOutTiles = Form::kTiles / Form::kSplit;
    float peak[kColumns];
    float sum[kColumns][Form::kSums];
    float out[kOutTiles][kColumns][4];
    __device__ Softmax() {
#pragma unroll
        for (int n = 0; n < kColumns; ++n) {
            peak[n] = minus_infinity();
#pragma unroll
            for (float& s : sum[n]) s = 0.0f;
#pragma unroll
            for (int j = 0; j < kOutTiles; ++j) {
#pragma unroll
                for (float& value : out[j][n]) value = 0.0f;
            }
        }
    }
    // The sums of all positions of operand rows 8 n + quad: neighbouring lanes first, then the lanes of a warp, then
    // the warps in order. Lane `place` has warps 4 h + place; where lanes are paired, 2 h + place / 2.
    template <class Exchange>
    __device__ void total(float (&whole)[kColumns], Exchange& exchange, int tile, int part, int lane) const {
        constexpr int kStep = Form::kPairedLanes ? 2 : 1, kHalfSums = Form::kSums / 2;
        const int quad = lane / 4, place = lane % 4;
        if constexpr (Form::kSplit == 1) {
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                whole[n] = 0.0f;
#pragma unroll
                for (int h = 0; h < Form::kAllSums / 4; ++h) {
                    const float* s = &sum[n][4 * h];
                    const float warp = (s[0] + s[1]) + (s[2] + s[3]);
#pragma unroll
                    for (int i = 0; i < 4; i += kStep) whole[n] += __shfl_sync(~0u, warp, lane - place + i);
                }
            }
        } else {
            meet_tile<Form>(tile);  // all have read the weights
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
#pragma unroll
                for (int j = 0; j < kHalfSums; ++j) {
                    exchange.halves[8 * n + quad][place][part * kHalfSums + j] = sum[n][2 * j] + sum[n][2 * j + 1];
                }
            }
            meet_tile<Form>(tile);
#pragma unroll
            for (int n = 0; n < kColumns; ++n) {
                whole[n] = 0.0f;
#pragma unroll
                for (int h = 0; h < Form::kAllSums / 4; ++h) {
#pragma unroll
                    for (int i = 0; i < 4; i += kStep) {
                        const float* const halves = &exchange.halves[8 * n + quad][i][2 * h];
                        whole[n] += halves[0] + halves[1];
                    }
                }
            }
        }
    }
};

// A unit's blocks for one tile, by a part of its warps. The first block is in the ring already. `tile_place`: of the
// tile among those of the CTA.
template <class Form, int kWidth, int kColumns, class Shared>
__device__ __forceinline__ void attend_unit(const AttendCall& c, Shared& shared, int team, int tile_place, int part,
                                            RingPlace& at, const typename Form::SlotInfo& unit, int32_t tile_index,
                                            const Tile& tile, const ChunkSpan& span) {
    using Entry = typename Form::Entry;
    constexpr bool kCoded = Form::kCoded;
    constexpr int kRun = Form::kRun, kKeySteps = Form::kKeyRun / 4, kValueSteps = kRun / 4, kMine = Form::kMine;
    constexpr int kOutTiles = Softmax<Form, kColumns>::kOutTiles;
    const int lane = static_cast<int>(threadIdx.x % 32), quad = lane / 4, place = lane % 4;
    auto& exchange = shared.exchange[tile_place];
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
    // This lane's part of every address in a slot, in entries.
    constexpr int kPiece = Form::kPieceBytes / static_cast<int>(sizeof(Entry));
    const int part_page = Form::part_page(part), part_position = Form::part_position(part);
    const int key_at = part_page * kPiece + Form::keys().key_place(kRun * (quad / 2) + quad % 2) +
                       Form::keys().key_place(part_position) + place * Form::kKeyRun;
    const int value_at = Form::kValuesAt + kRun * place + Form::values().value_value(quad) +
                         Form::values().value_value(16) * part * kOutTiles;
    Softmax<Form, kColumns> state;

#pragma unroll 1
    for (int32_t block = unit.block;; ++block) {
        if (block >= first_block && block < end_block) {
            const unsigned char* const bytes = shared.slots[team][at.slot];
            const auto* const slot = reinterpret_cast<const Entry*>(bytes);
            // Only the last block can lack a page.
            const int32_t pages = (span.end - block * Form::kBlock + kPagePositions - 1) / kPagePositions;
            const auto exists = [&](int l) {
                return Form::kBlockPages == 1 || part_page + Form::mma_page(l) == 0 || pages > 1;
            };
            // The first of the two positions that this lane has of an mma, counted from its page.
            const auto within = [&](int l) { return part_position + Form::mma_position(l) + kRun * place; };
            // Scales of K and V of both. Loaded each time: kept, they would be spilled.
            const auto scales = [&](int l) {
                const uint4 four =
                    load_shared4(shared_address(bytes + (part_page + Form::mma_page(l)) * Form::kPieceBytes) +
                                 static_cast<uint32_t>(KvCodes::scales(kWidth, within(l))));
                return float4{__uint_as_float(four.x), __uint_as_float(four.y), __uint_as_float(four.z),
                              __uint_as_float(four.w)};
            };
            // Scores of mma l: rows 8 m + quad, two positions each.
            float scores[kMine][2 * kColumns];
            constexpr int kWarpPages = Form::kSplit == 1 ? Form::kBlockPages : 1, kOfPage = kMine / kWarpPages;
#pragma unroll
            for (int i = 0; i < kWarpPages; ++i) {
                if (!exists(i * kOfPage)) {  // masked below
#pragma unroll
                    for (int l = i * kOfPage; l < (i + 1) * kOfPage; ++l) {
#pragma unroll
                        for (float& score : scores[l]) score = 0.0f;
                    }
                    continue;
                }
#pragma unroll
                for (int l = i * kOfPage; l < (i + 1) * kOfPage; ++l) {
                    const Entry* const key =
                        slot + key_at + Form::mma_page(l) * kPiece + Form::keys().key_place(Form::mma_position(l));
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
                    for (int k = 0; k < 2 * kColumns; ++k) scores[l][k] = sums[0][k] + sums[1][k];
                }
#pragma unroll
                for (int l = i * kOfPage; l < (i + 1) * kOfPage; ++l) {
                    float4 scale = {};
                    if constexpr (kCoded) scale = scales(l);
#pragma unroll
                    for (int k = 0; k < 2 * kColumns; ++k) {
                        if constexpr (kCoded) scores[l][k] *= k % 2 == 0 ? scale.x : scale.z;
                        scores[l][k] *= factor;
                    }
                }
            }
            if (block >= unmasked) {
#pragma unroll
                for (int l = 0; l < kMine; ++l) {
                    const int32_t p =
                        block * Form::kBlock + (part_page + Form::mma_page(l)) * kPagePositions + within(l);
#pragma unroll
                    for (int k = 0; k < 2 * kColumns; ++k) {
                        if (p + k % 2 < from[k / 2] || p + k % 2 > to[k / 2]) scores[l][k] = minus_infinity();
                    }
                }
            }
            float tops[kColumns];
#pragma unroll
            for (int m = 0; m < kColumns; ++m) {
                float top = minus_infinity();
#pragma unroll
                for (auto& two : scores) top = fmaxf(top, fmaxf(two[2 * m], two[2 * m + 1]));
                top = fmaxf(top, __shfl_xor_sync(~0u, top, 1));
                top = fmaxf(top, __shfl_xor_sync(~0u, top, 2));
                tops[m] = top;
                if constexpr (Form::kSplit > 1) {
                    if (place == 0) exchange.peaks[8 * m + quad][part] = top;
                }
            }
            if constexpr (Form::kSplit > 1) {
                meet_tile<Form>(tile_place);
#pragma unroll
                for (int m = 0; m < kColumns; ++m) {
                    if constexpr (Form::kSplit == 4) {
                        const float4 four = *reinterpret_cast<const float4*>(exchange.peaks[8 * m + quad]);
                        tops[m] = fmaxf(fmaxf(four.x, four.y), fmaxf(four.z, four.w));
                    } else {
                        const float2 two = *reinterpret_cast<const float2*>(exchange.peaks[8 * m + quad]);
                        tops[m] = fmaxf(two.x, two.y);
                    }
                }
            }
            float old[kColumns];
            uint32_t weights[kMine][kColumns];
#pragma unroll
            for (int m = 0; m < kColumns; ++m) {
                const float top = fmaxf(tops[m], state.peak[m]);
                old[m] = worth(state.peak[m], top);
                state.peak[m] = top;
                const float zero = top == minus_infinity() ? 0.0f : top;  // nothing attended yet
                float here[kMine];
#pragma unroll
                for (int l = 0; l < kMine; ++l) {
                    float a = power_of_two(scores[l][2 * m] - zero), b = power_of_two(scores[l][2 * m + 1] - zero);
                    here[l] = a + b;
                    if constexpr (kCoded) {
                        const float4 scale = scales(l);
                        a *= scale.y;
                        b *= scale.w;
                        if (!exists(l)) a = b = 0.0f;  // its scales are anything
                    }
                    weights[l][m] = pack(a, b);
                }
#pragma unroll
                for (int s = 0; s < Form::kSums; ++s) {
                    float added;
                    if constexpr (!kCoded) {
                        static_assert(kCoded || Form::kEights == 1);
                        added = here[s];
                    } else if constexpr (Form::kPairedLanes) {
                        added = here[s] + __shfl_xor_sync(~0u, here[s], 1);
                    } else {
                        // The two eights of a warp of attend_group().
                        static_assert(!kCoded || Form::kPairedLanes || (Form::kEights == 2 && kRun == 16));
                        constexpr int kApart = Form::kHalves ? 2 : 4;
                        const int l = s / kApart * 2 * kApart + s % kApart;
                        added = here[l] + here[l + kApart];
                    }
                    state.sum[m][s] = fmaf(state.sum[m][s], old[m], added);
                }
            }
            if constexpr (Form::kSplit > 1) {
#pragma unroll
                for (int l = 0; l < kMine; l += 2) {
#pragma unroll
                    for (int m = 0; m < kColumns; ++m) {
                        exchange.weights[m][part_page * (kPagePositions / 16) + Form::mma_number(part, l) / 2][lane] = {
                            weights[l][m], weights[l + 1][m]};
                    }
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
                    for (int j = 0; j < kOutTiles; ++j) {
#pragma unroll
                        for (int i = 0; i < 4; ++i) state.out[j][m][i] *= i % 2 == 0 ? first : second;
                    }
                }
            }
            meet_tile<Form>(tile_place);
#pragma unroll
            for (int i = 0; i < Form::kBlockPages; ++i) {
                if (i > 0 && i >= pages) break;
#pragma unroll
                for (int h = 0; h < Form::kPageStrips; ++h) {
                    uint2 operands[kValueSteps][kColumns];
#pragma unroll
                    for (int s = 0; s < kValueSteps; ++s) {
                        const int pair = i * (kPagePositions / 16) + h * kValueSteps + s;
#pragma unroll
                        for (int m = 0; m < kColumns; ++m) {
                            if constexpr (Form::kSplit > 1) {
                                operands[s][m] = exchange.weights[m][pair][lane];
                            } else {
                                operands[s][m] = {weights[2 * pair][m], weights[2 * pair + 1][m]};
                            }
                        }
                    }
#pragma unroll
                    for (int j = 0; j < kOutTiles; ++j) {
                        const Entry* const value = slot + i * kPiece + value_at +
                                                   Form::values().value_place(Form::kStrip * h) +
                                                   Form::values().value_value(16 * j);
                        const auto low = *reinterpret_cast<const typename Form::ValueRun*>(value);
                        const auto high = *reinterpret_cast<const typename Form::ValueRun*>(value + 32 * kRun);
#pragma unroll
                        for (int s = 0; s < kValueSteps; ++s) {
                            const uint2 l = Form::four(low, s), u = Form::four(high, s);
#pragma unroll
                            for (int m = 0; m < kColumns; ++m) {
                                product(state.out[j][m], l.x, u.x, l.y, u.y, operands[s][m].x, operands[s][m].y);
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
#pragma unroll
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
                for (int j = 0; j < kOutTiles; ++j) {
                    const int32_t d = 16 * (part * kOutTiles + j) + quad;
                    put(m, e, r, d, state.out[j][m][e]);
                    put(m, e, r, d + 8, state.out[j][m][2 + e]);
                }
            }
        }
    };
    float sum[kColumns];
    state.total(sum, exchange, tile_place, part, lane);
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
    Partial<kWidth>& partial = chunks_of<kWidth>(c, tile_index, unit.head_tile)[unit.chunk];
    each_value([&](int, int, int32_t r, int32_t d, float value) { __stcg(&partial.out[r][d], value); });
    if (place == 0 && part == 0) {
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
__device__ void attend(const AttendCall& c, Shared& shared, int warp) {
    const int team = warp / Form::kTeamWarps, tile_place = warp / Form::kSplit, part = warp % Form::kSplit;
    const int in_team = warp % Form::kTeamWarps / Form::kSplit;  // which tile of a unit
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
                attend_unit<Form, kWidth, 1>(c, shared, team, tile_place, part, at, unit, index, tile, span);
            } else {
                attend_unit<Form, kWidth, 2>(c, shared, team, tile_place, part, at, unit, index, tile, span);
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

__device__ inline void meet_all() { named_barrier<1, 32 * kFlashWarps>(); }

// All CTAs meet; those that merge wait. By the whole CTA. The counters are 0 before and after a launch.
__device__ inline void meet_grid(const AttendCall& c, bool merges) {
    meet_all();
    if (threadIdx.x == 0) {
        int32_t* const arrived = c.taken + 2;
        int32_t* const departed = c.taken + 3;
        const auto blocks = static_cast<int32_t>(gridDim.x);
        __threadfence();
        atomicAdd(arrived, 1);
        if (merges) {
            int32_t seen;
            do {
                asm volatile("ld.acquire.gpu.global.s32 %0, [%1];" : "=r"(seen) : "l"(arrived) : "memory");
            } while (seen < blocks);
        }
        if (atomicAdd(departed, 1) == blocks - 1) {
            __stcg(arrived, 0);
            __stcg(departed, 0);
        }
    }
    if (merges) meet_all();
}

// This CTA's share of the rows to merge: a warp adds every eighth chunk of a row in order, all of them in flight at
// once, then a thread for each value adds the eight sums. The same sums as merge_row() (merge_chunks.cuh).
template <int kWidth, class Merge>
__device__ void merge_rows(const AttendCall& c, Merge& shared) {
    using attention::kMergeShares;
    constexpr int kAtOnce = 12;
    const auto share = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    static_assert(kFlashWarps == kMergeShares && kWidth <= 128);
    int turn = 0;
#pragma unroll 1
    for (auto m = static_cast<int32_t>(blockIdx.x); m < c.merges(); m += static_cast<int32_t>(gridDim.x)) {
        const UnitIndex index(c, m);
        const int32_t r = index.rank;
        const Tile tile(c, index.tile, index.head_tile);
        if (!tile.valid(r)) continue;
        const ChunkSpan span(c, tile.state, tile.state);
        if (span.first_chunk == span.last_chunk) continue;
        const Partial<kWidth>* const chunks = chunks_of<kWidth>(c, index.tile, index.head_tile);
        float peak = minus_infinity(), sum = 0.0f;
        float4 out = {};
#pragma unroll 1
        for (int32_t k = span.first_chunk + ((share - span.first_chunk) & (kMergeShares - 1)); k <= span.last_chunk;
             k += kMergeShares * kAtOnce) {
            float2 weight[kAtOnce];
            float4 part[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                if (k + kMergeShares * i > span.last_chunk) continue;
                const Partial<kWidth>& chunk = chunks[k + kMergeShares * i];
                weight[i] = __ldcg(&chunk.peak_and_sum[r]);
                part[i] = {};
                if (4 * lane < kWidth) part[i] = __ldcg(reinterpret_cast<const float4*>(&chunk.out[r][4 * lane]));
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                if (k + kMergeShares * i > span.last_chunk) continue;
                const float top = fmaxf(peak, weight[i].x), old = worth(peak, top), now = worth(weight[i].x, top);
                const float4 p = part[i];
                peak = top;
                sum = fmaf(weight[i].y, now, sum * old);
                out = {fmaf(p.x, now, out.x * old), fmaf(p.y, now, out.y * old), fmaf(p.z, now, out.z * old),
                       fmaf(p.w, now, out.w * old)};
            }
        }
        if (lane == 0) shared.peak_and_sum[turn][share] = {peak, sum};
        if (4 * lane < kWidth) *reinterpret_cast<float4*>(&shared.out[turn][share][4 * lane]) = out;
        // Once for each row: what is read below is written again only after the meeting of the next one.
        meet_all();
        if (const auto d = static_cast<int32_t>(threadIdx.x); d < kWidth) {
            float top = minus_infinity(), all = 0.0f, value = 0.0f;
#pragma unroll
            for (int i = 0; i < kMergeShares; ++i) top = fmaxf(top, shared.peak_and_sum[turn][i].x);
#pragma unroll
            for (int i = 0; i < kMergeShares; ++i) {
                const float2 w = shared.peak_and_sum[turn][i];
                const float now = worth(w.x, top);
                all = fmaf(w.y, now, all);
                value = fmaf(shared.out[turn][i][d], now, value);
            }
            if (d < c.head_dim) c.out[tile.values(c, r) + d] = value * reciprocal(all);
        }
        turn ^= 1;
    }
}

template <int kWidth, KvFormat kFormat, int kSetTiles>
__global__ void __launch_bounds__(32 * kFlashWarps, 1) flash_kernel(const __grid_constant__ AttendCall c) {
// Code for older devices never gets here (can_flash_decode), and would only take room.
#if __CUDA_ARCH__ >= 900
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
                shared.readers[team][slot] = 0;
            }
            auto& supply = shared.supply[team];
            supply.unit = {};
            supply.slot = 0;
            // Neighbouring units lie in the same pages, so they go to different multiprocessors.
            supply.next_unit = static_cast<int32_t>(team * gridDim.x + blockIdx.x);
        }
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    }
    if (warp == 1) find_sets<kSetTiles>(c, shared);
    __syncthreads();
    if (warp % Form::kTeamWarps == 0) {
        for (int i = 0; i < Form::kSlots; ++i) bring_block<Form>(c, shared, warp / Form::kTeamWarps);
    }
    await_predecessors();
    attend<Form, kWidth>(c, shared, warp);
    if (c.merges() == 0) return;
    const bool merges = static_cast<int32_t>(blockIdx.x) < c.merges();
    meet_grid(c, merges);
    if (merges) merge_rows<kWidth>(c, shared.merge);
#endif
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
    if (call.tree || call.soft_cap > 0 || call.sinks != nullptr || call.tiles > kMostFlashTiles) return false;
    if (call.layout.width != 64 && call.layout.width != 128) return false;
    // As much as the largest variant may have.
    return device.shared_bytes >= kRingBytes + 28 * 1024 && code_version(device.index) >= 90;
}

void launch_flash_decode(cudaStream_t stream, const AttendCall& call, int32_t together) {
    int device = 0, processors = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    cuda_check(cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device),
               "cannot ask for the number of multiprocessors");
    with_flash_variant(call, together, [&](auto width, auto format, auto tiles) {
        using Form = FlashForm<width, format, tiles>;
        static_assert(sizeof(typename Form::Shared) <= kRingBytes + 28 * 1024);
        launch_overlapping("attention", flash_kernel<width, format, tiles>, dim3(static_cast<unsigned>(processors)),
                           32 * kFlashWarps, static_cast<int>(sizeof(typename Form::Shared)), stream, call);
    });
}

}  // namespace foresay::kernels::cuda
