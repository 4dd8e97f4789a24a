// kernels/cpu/isa/attend.cpp: softmax attention of the query heads of one row that share a key-value head.
//
// Law 1: positions are taken in tiles of 64 that start at multiples of 64, each tile in increasing position; the running
// maximum, sum and weighted values are updated tile by tile. A row's bits depend on its own positions only.

#include "kernels/cpu/isa/table.h"

namespace foresay::kernels::cpu::FORESAY_ISA {
namespace {

using std::int64_t;
using std::uint16_t;

constexpr int kTile = 64;

// scores[h, 64]: q . k for `blocks` blocks of 16 positions, two blocks and two halves of the head width at a time.
template <int H>
FORESAY_INLINE void score_block(const float* q, int head_dim, const uint16_t* k, float* scores) {
    F even[H], odd[H];
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) even[h] = odd[h] = set(0.0f);
    int d = 0;
    for (; d + 2 <= head_dim; d += 2) {
        const F k0 = load_half(k + 16 * d), k1 = load_half(k + 16 * d + 16);
#pragma GCC unroll 8
        for (int h = 0; h < H; ++h) {
            even[h] = fma(k0, set(q[h * head_dim + d]), even[h]);
            odd[h] = fma(k1, set(q[h * head_dim + d + 1]), odd[h]);
        }
    }
    if (d < head_dim) {
        const F k0 = load_half(k + 16 * d);
#pragma GCC unroll 8
        for (int h = 0; h < H; ++h) even[h] = fma(k0, set(q[h * head_dim + d]), even[h]);
    }
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) store(scores + h * kTile, add(even[h], odd[h]));
}

// values[h, 16 V of the head width] = values * decay[h] + sum over positions of weight * v. V vectors at a time, because a
// sum over positions is one chain of additions: H * V chains keep the units busy.
template <int H, int V>
FORESAY_INLINE void weigh_values(const float* weights, const float* decay, const uint16_t* v, int v_stride, int begin,
                                 int end, float* values, int values_stride) {
    F acc[H][V];
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
#pragma GCC unroll 8
        for (int j = 0; j < V; ++j) acc[h][j] = mul(load(values + h * values_stride + 16 * j), set(decay[h]));
    }
    for (int i = begin; i < end; ++i) {
        F row[V];
#pragma GCC unroll 8
        for (int j = 0; j < V; ++j) row[j] = load_half(v + static_cast<int64_t>(i) * v_stride + 16 * j);
#pragma GCC unroll 8
        for (int h = 0; h < H; ++h) {
            const F weight = set(weights[h * kTile + i]);
#pragma GCC unroll 8
            for (int j = 0; j < V; ++j) acc[h][j] = fma(row[j], weight, acc[h][j]);
        }
    }
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
#pragma GCC unroll 8
        for (int j = 0; j < V; ++j) store(values + h * values_stride + 16 * j, acc[h][j]);
    }
}

// Turns the scores of lanes [begin, end) of one tile into weights against the new running maximum; returns the decay of
// what was summed before.
FORESAY_INLINE float soften(float* scores, int begin, int end, float scale, float soft_cap, float& peak, float& total) {
    const F none = set(-3.0e38f);
    F s[4];
    F best = none;
    for (int b = 0; b < 4; ++b) {
        s[b] = mul(load(scores + 16 * b), set(scale));
        if (soft_cap > 0) s[b] = mul(set(soft_cap), tanh(div(s[b], set(soft_cap))));
        const int from = begin - 16 * b < 0 ? 0 : begin - 16 * b, to = end - 16 * b > 16 ? 16 : end - 16 * b;
        s[b] = to > from ? select_lanes(from, to, s[b], none) : none;
        best = max(best, s[b]);
    }
    const float tile_peak = max_lanes(best);
    const float new_peak = tile_peak > peak ? tile_peak : peak;
    F sum = set(0.0f);
    for (int b = 0; b < 4; ++b) {
        s[b] = exp(sub(s[b], set(new_peak)));
        store(scores + 16 * b, s[b]);
        sum = add(sum, s[b]);
    }
    float lanes[16];
    store(lanes, exp(set(peak - new_peak)));
    const float decay = lanes[0];
    total = total * decay + sum_lanes(sum);
    peak = new_peak;
    return decay;
}

template <int H>
void attend_heads(const AttendTask& t, const float* q, float* out) {
    const int padded = (t.head_dim + 15) / 16 * 16;
    float* scores = t.scratch;              // [H, 64]
    float* values = t.scratch + H * kTile;  // [H, padded]
    float peak[H], total[H], decay[H];
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
        peak[h] = -1.0e38f;
        total[h] = 0;
    }
    for (int i = 0; i < H * padded; i += 16) store(values + i, set(0.0f));
    const int first_tile = t.first / kTile, last_tile = t.last / kTile;
    for (int tile = first_tile; tile <= last_tile; ++tile) {
        const int begin = tile == first_tile ? t.first % kTile : 0;
        const int end = tile == last_tile ? t.last % kTile + 1 : kTile;
        const uint16_t* k = t.k_tiles[tile - first_tile];
        const uint16_t* v = t.v_tiles[tile - first_tile];
        for (int b = begin / 16; 16 * b < end; ++b)
            score_block<H>(q, t.head_dim, k + 16 * b * t.head_dim, scores + 16 * b);
#pragma GCC unroll 8
        for (int h = 0; h < H; ++h)
            decay[h] = soften(scores + h * kTile, begin, end, t.scale, t.soft_cap, peak[h], total[h]);
        int d = 0;
        for (; d + 64 <= padded; d += 64) {
            weigh_values<H, 4>(scores, decay, v + d, padded, begin, end, values + d, padded);
        }
        for (; d < padded; d += 16) {
            weigh_values<H, 1>(scores, decay, v + d, padded, begin, end, values + d, padded);
        }
    }
#pragma GCC unroll 8
    for (int h = 0; h < H; ++h) {
        const float inverse = 1.0f / total[h];
        for (int d = 0; d < t.head_dim; ++d) out[h * t.head_dim + d] = values[h * padded + d] * inverse;
    }
}

}  // namespace

void attend(const AttendTask& task) {
    int h = 0;
    const auto at = [&](auto* p) { return p + static_cast<int64_t>(h) * task.head_dim; };
    for (; h + 4 <= task.heads; h += 4) attend_heads<4>(task, at(task.q), at(task.out));
    for (; h + 2 <= task.heads; h += 2) attend_heads<2>(task, at(task.q), at(task.out));
    for (; h < task.heads; ++h) attend_heads<1>(task, at(task.q), at(task.out));
}

}  // namespace foresay::kernels::cpu::FORESAY_ISA
