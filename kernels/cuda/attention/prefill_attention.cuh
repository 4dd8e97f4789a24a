// kernels/cuda/attention/prefill_attention.cuh: attention of prefill rows. One warp takes a tile (16 rows of the
// operand) through all its positions in order, 32 at a time, so there is no merge and no barrier; shared memory is not
// used.
//
// Data flow of a strip of 32 positions, per warp:
//
//   K        global, through L1 --> registers, four mma columns of 8 positions  (Keys::load)
//   scores   Q . K^T, Q in registers for the whole tile
//   V        global --> registers, asked for before the softmax of the strip
//   softmax  online, for the lane's two rows quad and quad + 8; the four lanes of a quad exchange peaks by shuffles
//   output   P . V: the accumulators of the scores, packed to float16, already are operand A
//
// Lanes:    (quad, place) = (lane / 4, lane % 4), as in decode_attention.cuh.
// Order:    the positions of a row come in order from a fixed absolute beginning, so its sums do not depend on the tile
//           (law 1).
// Layout:   the mma columns of scores are permuted (Keys::position) so that a lane ends up with eight neighbouring
//           positions, which are 16 contiguous bytes of V.
// Threads:  four warps per CTA, four tiles; they share nothing but L1, where neighbours find each other's keys. Warps
//           never meet, so a warp without a tile just returns.
// Cache:    float16 only. The caller expands a cache of codes first (kernels/cuda/memory/kv_expand.h).
// Trees:    rows of a tree are alone in their tile. Positions of a tree path lie in cells of their own, so the strips
//           that reach them are gathered, K key by key and V number by number (`gather`). Slow, but few.

#pragma once

#include "kernels/cuda/attention/tile.cuh"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;

using attention::kLog2e;
using attention::minus_infinity;
using attention::pack;
using attention::power_of_two;
using attention::sink_weight;
using attention::Tile;

constexpr int kStrip = 32;  // positions that a warp takes at a time
constexpr int kWarps = 4;   // of a CTA
constexpr int kThreads = 32 * kWarps;

__device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    attention::multiply_add(c, a[0], a[1], a[2], a[3], b0, b1);
}

// The online softmax of a warp: of operand rows lane / 4 and lane / 4 + 8.
template <int kWidth>
struct Softmax {
    float peak[2];             // of the scores so far, times log2(e)
    float sum[2];              // of this lane's positions
    float out[kWidth / 8][4];  // columns 8 i + 2 (lane % 4) + {0, 1}, of both rows
};

// Through L1, where the other warps of the CTA find it.
__device__ uint4 load16(const __half* from) { return *reinterpret_cast<const uint4*>(from); }

// Where the keys and values of a tile are.
template <int kWidth>
struct Cells {
    const __half* base;
    const int32_t* pages;
    int64_t page_stride, v_offset;

    __device__ Cells(const AttendCall& c, const Tile& tile)
        : base(c.kv + tile.kv_head * c.layout.head_stride),
          pages(c.batch.lists + tile.state.pages),
          page_stride(c.layout.page_stride),
          v_offset(c.layout.v_offset()) {}
    // Value 0 of K at position `start`, which begins a strip: a multiple of 8, so key_place() is position * kWidth.
    __device__ const __half* keys(int32_t start) const {
        return base + pages[start / kPagePositions] * page_stride + (start % kPagePositions) * kWidth;
    }
    // Value 0 of V there.
    __device__ const __half* values(int32_t start) const {
        return base + pages[start / kPagePositions] * page_stride + v_offset +
               value_order(KvFormat::f16, kWidth).value_place(start % kPagePositions);
    }
};

// K of a strip as operands B, in groups of 32 values, as many at once as registers hold: heads of 256 have their sums
// and queries in 192 of them. Column `quad` of mma n is position 8 (quad / 2) + 2 n + quad % 2, so that a lane gets the
// scores of eight neighbours.
template <int kWidth>
struct Keys {
    static constexpr int kAtOnce = kWidth > 128 ? 1 : kWidth / 32;
    uint4 k[4][kAtOnce];

    __device__ static int32_t position(int n) {
        const int quad = threadIdx.x % 32 / 4;
        return 8 * (quad / 2) + 2 * n + quad % 2;
    }
    // Groups first, first + 1, ...
    __device__ void load(const __half* keys, int first) {
        const int place = threadIdx.x % 4;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int g = 0; g < kAtOnce; ++g) {
                k[n][g] = load16(keys + key_order(KvFormat::f16, kWidth).key_place(position(n)) +
                                 KvLayout::key_value(32 * (first + g) + 8 * place));
            }
        }
    }
};

// Strips [first, last) of a tile into `state`, whose outputs are not divided by the sums yet. kSpecial: the rows may be
// those of a tree, or their scores capped. The usual case is a kernel of its own without that code.
template <int kWidth, bool kSpecial>
__device__ void attend_strips(const AttendCall& c, const Tile& tile, const Cells<kWidth>& cells, int32_t first,
                              int32_t last, Softmax<kWidth>& state) {
    constexpr int kGroups = kWidth / 32;                    // of 32 values of a head
    constexpr int kValues = kWidth > 128 ? 2 : kWidth / 8;  // values of a lane that are in flight
    const int lane = threadIdx.x % 32, quad = lane / 4, place = lane % 4;
    const int32_t head_dim = c.head_dim;

    // Operand A. The values of a head are contracted in an order of our own, the same for queries and keys: lane
    // `place` of a quad has values 32 g + 8 place ... + 7, which are 16 contiguous bytes of K. Changing the order
    // changes the bits of the scores.
    uint32_t q[2 * kGroups][4];
    // Positions that the two rows attend to: from <= p <= to. Operand rows without a batch row attend to nothing.
    int32_t from[2], to[2];
    for (int i = 0; i < 2; ++i) {
        const int32_t r = quad + 8 * i;
        const bool valid = tile.valid(r);
        const int32_t t = valid ? tile.row(r) : tile.state.first;
        to[i] = valid ? c.batch.rows[t].position : -1;
        from[i] = c.window > 0 ? max(0, to[i] - c.window + 1) : 0;
        const float* values = c.q + static_cast<int64_t>(t) * c.heads * head_dim +
                              static_cast<int64_t>(valid ? tile.head(r) : tile.head_first) * head_dim;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
            float v[8];
#pragma unroll
            for (int j = 0; j < 8; j += 4) {  // heads are whole fours
                const int32_t d = 32 * g + 8 * place + j;
                const float4 four = valid && d < head_dim ? __ldcg(reinterpret_cast<const float4*>(values + d))
                                                          : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                v[j] = four.x;
                v[j + 1] = four.y;
                v[j + 2] = four.z;
                v[j + 3] = four.w;
            }
            q[2 * g][i] = pack(v[0], v[1]);
            q[2 * g][2 + i] = pack(v[2], v[3]);
            q[2 * g + 1][i] = pack(v[4], v[5]);
            q[2 * g + 1][2 + i] = pack(v[6], v[7]);
        }
    }
    const int32_t in_place =  // positions from here on lie in the cells of a tree
        tile.state.branch > 0 ? tile.state.highest - tile.state.branch + 1 : 0x7fffffff;
    RowState lead = {};
    if (kSpecial) lead = c.batch.rows[tile.state.first];

#pragma unroll 1
    for (int32_t strip = first; strip < last; ++strip) {
        Keys<kWidth> keys;
        const int32_t start = strip * kStrip;
        const bool gather = kSpecial && start + kStrip > in_place;  // the same in all lanes
        // Scores of 32 positions: four mma columns of eight.
        float scores[4][4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            for (float& score : scores[n]) score = 0.0f;
        }
#pragma unroll
        for (int part = 0; part < kGroups; part += keys.kAtOnce) {
            if (kSpecial && gather) {
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    // Positions past the row's own are masked below; they load its own key, because they have no cell.
                    const int32_t p = min(start + Keys<kWidth>::position(n), lead.position);
                    const int32_t cell = c.batch.cell(lead, p);
                    const __half* key =
                        cells.base + c.layout.k_cell(cells.pages[cell / kPagePositions], cell % kPagePositions);
#pragma unroll
                    for (int g = 0; g < keys.kAtOnce; ++g) {
                        keys.k[n][g] = load16(key + KvLayout::key_value(32 * (part + g) + 8 * place));
                    }
                }
            } else {
                keys.load(cells.keys(start), part);
            }
#pragma unroll
            for (int n = 0; n < 4; ++n) {
#pragma unroll
                for (int g = 0; g < keys.kAtOnce; ++g) {
                    multiply_add(scores[n], q[2 * (part + g)], keys.k[n][g].x, keys.k[n][g].y);
                    multiply_add(scores[n], q[2 * (part + g) + 1], keys.k[n][g].z, keys.k[n][g].w);
                }
            }
        }
        // V is in flight while the scores become weights.
        uint4 v[kValues];
        const __half* const values = gather ? nullptr : cells.values(start);
        const auto load_values = [&](int first) {
#pragma unroll
            for (int d = 0; d < kValues; ++d) {
                v[d] = load16(values + KvLayout::value_value(8 * (first + d) + quad) + 8 * place);
            }
        };
        if (!gather) load_values(0);
        // Scale, cap and mask, and the largest score of each row among this lane's positions, then among the quad's.
        float top[2] = {minus_infinity(), minus_infinity()};
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int i = j / 2;
                const int32_t p = start + 8 * place + 2 * n + j % 2;
                float score = scores[n][j] * c.scale;
                if (kSpecial && c.soft_cap > 0) score = c.soft_cap * tanhf(score / c.soft_cap);
                score = p >= from[i] && p <= to[i] ? score * kLog2e : minus_infinity();
                scores[n][j] = score;
                top[i] = fmaxf(top[i], score);
            }
        }
        // Scales the sum so far to the new peak and adds the weights of this strip. The outputs so far are scaled where
        // they are added to, below.
        float old_weight[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 1));
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 2));
            top[i] = fmaxf(top[i], state.peak[i]);
            const float zero = top[i] == minus_infinity() ? 0.0f : top[i];  // nothing attended yet
            old_weight[i] = power_of_two(state.peak[i] - zero);
            state.peak[i] = top[i];
            float sum = 0.0f;
#pragma unroll
            for (int n = 0; n < 4; ++n) {
#pragma unroll
                for (int j = 2 * i; j < 2 * i + 2; ++j) {
                    scores[n][j] = power_of_two(scores[n][j] - zero);
                    sum += scores[n][j];
                }
            }
            state.sum[i] = fmaf(state.sum[i], old_weight[i], sum);
        }
        // The accumulators of the scores are, packed, operand A of the next product: no exchange between lanes.
        uint32_t weights[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            weights[m][0] = pack(scores[2 * m][0], scores[2 * m][1]);
            weights[m][1] = pack(scores[2 * m][2], scores[2 * m][3]);
            weights[m][2] = pack(scores[2 * m + 1][0], scores[2 * m + 1][1]);
            weights[m][3] = pack(scores[2 * m + 1][2], scores[2 * m + 1][3]);
        }
#pragma unroll
        for (int d = 0; d < kWidth / 8; ++d) {
            uint4& at = v[d % kValues];
            if (kSpecial && gather) {
                // Eight positions of value 8 d + quad, as one contiguous load would have brought them.
                __half gathered[8];
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    const int32_t cell = c.batch.cell(lead, min(start + 8 * place + j, lead.position));
                    gathered[j] =
                        cells.base[c.layout.v_cell(cells.pages[cell / kPagePositions], cell % kPagePositions) +
                                   KvLayout::value_value(8 * d + quad)];
                }
                at.x = pack(gathered[0], gathered[1]);
                at.y = pack(gathered[2], gathered[3]);
                at.z = pack(gathered[4], gathered[5]);
                at.w = pack(gathered[6], gathered[7]);
            } else if (d > 0 && d % kValues == 0) {
                load_values(d);
            }
            float(&out)[4] = state.out[d];
            out[0] *= old_weight[0];
            out[1] *= old_weight[0];
            out[2] *= old_weight[1];
            out[3] *= old_weight[1];
            multiply_add(out, weights[0], at.x, at.y);
            multiply_add(out, weights[1], at.z, at.w);
        }
    }
    // Each lane has summed its own positions; the peaks already agree.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        state.sum[i] += __shfl_xor_sync(0xffffffffu, state.sum[i], 1);
        state.sum[i] += __shfl_xor_sync(0xffffffffu, state.sum[i], 2);
    }
}

template <int kWidth>
__device__ Softmax<kWidth> empty_softmax() {
    Softmax<kWidth> state;
    for (int i = 0; i < 2; ++i) {
        state.peak[i] = minus_infinity();
        state.sum[i] = 0.0f;
    }
#pragma unroll
    for (int d = 0; d < kWidth / 8; ++d) {
        for (float& value : state.out[d]) value = 0.0f;
    }
    return state;
}

// Grid: x: four tiles per CTA; y: head tiles (Tile). Every valid row attends to itself at least, so no sum is 0.
template <int kWidth, bool kSpecial>
__global__ void __launch_bounds__(kThreads) prefill_kernel(AttendCall c) {
    // Later tiles have more positions, so they start first.
    const int32_t index = c.tiles - 1 - static_cast<int32_t>(blockIdx.x * kWarps + threadIdx.x / 32);
    if (index < 0) return;
    const Tile tile(c, index, blockIdx.y);
    // Strips begin at multiples of kStrip. One that no row of the tile attends to yet adds an exact 0.
    const int32_t least = tile.least(c), most = tile.state.highest;
    Softmax<kWidth> state = empty_softmax<kWidth>();
    const Cells<kWidth> cells(c, tile);
    attend_strips<kWidth, kSpecial>(c, tile, cells, least / kStrip, most / kStrip + 1, state);
    const int lane = threadIdx.x % 32, quad = lane / 4, place = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int32_t r = quad + 8 * i;
        if (!tile.valid(r)) continue;
        if (c.sinks != nullptr) state.sum[i] += sink_weight(c.sinks[tile.head(r)], state.peak[i]);
        float* out = c.out + (static_cast<int64_t>(tile.row(r)) * c.heads + tile.head(r)) * c.head_dim;
#pragma unroll
        for (int d = 0; d < kWidth / 8; ++d) {
            for (int j = 0; j < 2; ++j) {
                const int column = 8 * d + 2 * place + j;
                if (column < c.head_dim) out[column] = state.out[d][2 * i + j] / state.sum[i];
            }
        }
    }
}

}  // namespace

}  // namespace foresay::kernels::cuda
