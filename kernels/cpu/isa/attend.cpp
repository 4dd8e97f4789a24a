// kernels/cpu/isa/attend.cpp: softmax attention of the query heads that share a key-value head, for one row or for a
// few rows at consecutive positions, which then read K and V once.
//
// Data flow (online softmax, as in FlashAttention): Q <= 8 queries (row x head) at a time pass over tiles of 64
// positions. For a tile:
//
//     score_block    scores[j, 64] = q[j] . k        positions in the lanes: no sum across lanes, no shuffles
//     scale_scores   scale, soft cap, mask; the tile's maximum, and so the running maximum peak[j]
//     soften         weights[j, 64] = exp(score - peak), in place; total[j] = total[j] * decay[j] + their sum
//     weigh_values   values[j, Dh] = values[j, Dh] * decay[j] + weights . v        values of the head in the lanes
//
// where decay[j] = exp(old peak - new peak). At the end the values are divided by total[j]. The scratch holds scores
// and values of the Q queries.
//
// Formats: keys and values are widened to float32 in registers. With int8, a key's step multiplies its score and a
// value's step multiplies its weight, so the inner loops gain one conversion and nothing else.
//
// Law 1: tiles begin at multiples of 64 and are processed in increasing position; peak, total and values are updated
// once per tile. A row's bits depend on its own positions only. Positions that were never written may hold
// anything, even NaN:
// their scores are replaced, and their values are not read.

#include "kernels/cpu/isa/table.h"

namespace foresay::kernels::cpu::FORESAY_ISA {
namespace {

using std::int64_t;
using std::uint16_t;

constexpr int kTile = 64;

// The formats of the KV cache. load16() widens 16 elements to float32. If kSteps, the caller must still multiply by the
// step of their position.
struct Halves {
    using Value = uint16_t;
    static constexpr bool kSteps = false;
    FORESAY_INLINE F load16(const Value* p) { return load_half(p); }
};
struct Codes {
    using Value = std::int8_t;
    static constexpr bool kSteps = true;
    FORESAY_INLINE F load16(const Value* p) { return to_float(load_i8(p)); }
};

// scores[j, 64] of 16 positions: q[j] . k, with one sum for the even and one for the odd dimensions of the head. The
// lanes are positions, so a step is one factor at the end.
template <class Cache, int Q>
FORESAY_INLINE void score_block(const float* const* q, int head_dim, const typename Cache::Value* k, const float* steps,
                                float* scores) {
    F even[Q], odd[Q];
#pragma GCC unroll 8
    for (int j = 0; j < Q; ++j) even[j] = odd[j] = set(0.0f);
    int d = 0;
    for (; d + 2 <= head_dim; d += 2) {
        const F k0 = Cache::load16(k + 16 * d), k1 = Cache::load16(k + 16 * d + 16);
#pragma GCC unroll 8
        for (int j = 0; j < Q; ++j) {
            even[j] = fma(k0, set(q[j][d]), even[j]);
            odd[j] = fma(k1, set(q[j][d + 1]), odd[j]);
        }
    }
    if (d < head_dim) {
        const F k0 = Cache::load16(k + 16 * d);
#pragma GCC unroll 8
        for (int j = 0; j < Q; ++j) even[j] = fma(k0, set(q[j][d]), even[j]);
    }
#pragma GCC unroll 8
    for (int j = 0; j < Q; ++j) {
        const F sum = add(even[j], odd[j]);
        store(scores + j * kTile, Cache::kSteps ? mul(sum, load(steps)) : sum);
    }
}

// values[j, 16 V of the head] = values * decay[j] + sum over positions [begin, end) of weight * v. Each sum is a chain
// of dependent additions; Q * V independent chains hide their latency.
template <class Cache, int Q, int V>
FORESAY_INLINE void weigh_columns(const float* weights, const float* decay, const typename Cache::Value* v,
                                  int v_stride, int begin, int end, float* values) {
    F acc[Q][V];
#pragma GCC unroll 8
    for (int j = 0; j < Q; ++j) {
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i) acc[j][i] = mul(load(values + j * v_stride + 16 * i), set(decay[j]));
    }
    for (int p = begin; p < end; ++p) {
        F row[V];
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i) row[i] = Cache::load16(v + static_cast<int64_t>(p) * v_stride + 16 * i);
#pragma GCC unroll 8
        for (int j = 0; j < Q; ++j) {
            const F weight = set(weights[j * kTile + p]);
#pragma GCC unroll 8
            for (int i = 0; i < V; ++i) acc[j][i] = fma(row[i], weight, acc[j][i]);
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < Q; ++j) {
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i) store(values + j * v_stride + 16 * i, acc[j][i]);
    }
}

template <class Cache, int Q>
FORESAY_INLINE void weigh_values(const float* weights, const float* decay, const typename Cache::Value* v, int padded,
                                 int begin, int end, float* values) {
    constexpr int V = Q <= 4 ? 4 : 2;
    int d = 0;
    for (; d + 16 * V <= padded; d += 16 * V) {
        weigh_columns<Cache, Q, V>(weights, decay, v + d, padded, begin, end, values + d);
    }
    for (; d < padded; d += 16) weigh_columns<Cache, Q, 1>(weights, decay, v + d, padded, begin, end, values + d);
}

// The same for one query, not inlined: it is rarely needed (positions of the last tile that only later rows attend to).
template <class Cache>
__attribute__((noinline)) void weigh_rest(const float* weights, const typename Cache::Value* v, int padded, int begin,
                                          int end, float* values) {
    const float keep = 1.0f;
    weigh_values<Cache, 1>(weights, &keep, v, padded, begin, end, values);
}

// Scales and caps the scores of positions [begin, end) of one tile, in place. Sets the others so low that their weight
// is 0. Returns the largest.
FORESAY_INLINE float scale_scores(float* scores, int begin, int end, float scale, float soft_cap) {
    const F none = set(-3.0e38f);
    F best = none;
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
        F s = mul(load(scores + 16 * b), set(scale));
        if (soft_cap > 0) s = mul(set(soft_cap), tanh(div(s, set(soft_cap))));
        const int from = begin - 16 * b < 0 ? 0 : begin - 16 * b, to = end - 16 * b > 16 ? 16 : end - 16 * b;
        s = to > from ? select_lanes(from, to, s, none) : none;
        store(scores + 16 * b, s);
        best = max(best, s);
    }
    return max_lanes(best);
}

// Turns scaled scores into weights exp(score - peak) and returns their sum. The weights are then stored multiplied by
// the steps of the values; the sum is not.
template <class Cache>
FORESAY_INLINE float soften(float* scores, float peak, const float* steps) {
    F sum = set(0.0f);
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
        const F weight = exp(sub(load(scores + 16 * b), set(peak)));
        store(scores + 16 * b, Cache::kSteps ? mul(weight, load(steps + 16 * b)) : weight);
        sum = add(sum, weight);
    }
    return sum_lanes(sum);
}

template <class Value>
FORESAY_INLINE void prefetch_values(const Value* p, int count) {
    constexpr int kLine = 64 / static_cast<int>(sizeof(Value));
    for (int i = 0; i < count; i += kLine) prefetch(p + i);
}

// The steps that follow the `width` values of each position of a page.
template <class Cache>
FORESAY_INLINE const float* steps_of(const typename Cache::Value* values, int width) {
    return Cache::kSteps ? reinterpret_cast<const float*>(values + kTile * width) : nullptr;
}

// Runs queries [from, from + Q) of the task, numbered row by row, over all tiles.
template <class Cache, int Q>
void attend_queries(const AttendTask& t, int from) {
    using Value = typename Cache::Value;
    const int padded = (t.head_dim + 15) / 16 * 16;
    float* scores = t.scratch;              // [Q, 64]
    float* values = t.scratch + Q * kTile;  // [Q, padded]
    const float* q[Q];
    float peak[16], decay[16], total[Q];  // the first two as one vector, for one exp
    int last[Q];
    for (int j = 0; j < Q; ++j) {
        const int row = (from + j) / t.heads, head = (from + j) % t.heads;
        q[j] = t.q + row * t.q_stride + static_cast<int64_t>(head) * t.head_dim;
        last[j] = t.last + row;
        total[j] = 0;
    }
    store(peak, set(-1.0e38f));
    // A sink is a score that has been seen before the first position.
    for (int j = 0; j < Q && t.sinks != nullptr; ++j) {
        peak[j] = t.sinks[(from + j) % t.heads];
        total[j] = 1.0f;
    }
    for (int i = 0; i < Q * padded; i += 16) store(values + i, set(0.0f));
    const int first_tile = t.first / kTile, last_tile = t.last / kTile;
    const auto tile_of = [&](const std::uint8_t* const* tiles, int tile) {
        return reinterpret_cast<const Value*>(tiles[tile - first_tile]);
    };
    prefetch_values(tile_of(t.k_tiles, first_tile), kTile * t.head_dim);
    for (int tile = first_tile; tile <= last_tile; ++tile) {
        const bool tail = tile == last_tile;
        const int begin = tile == first_tile ? t.first % kTile : 0;
        const int end = tail ? last[0] % kTile + 1 : kTile, longest = tail ? last[Q - 1] % kTile + 1 : kTile;
        const Value* k = tile_of(t.k_tiles, tile);
        const Value* v = tile_of(t.v_tiles, tile);
        const float *k_steps = steps_of<Cache>(k, t.head_dim), *v_steps = steps_of<Cache>(v, padded);
        // Tiles are too short for the hardware prefetcher. Prefetch this tile's values here, the next tile's keys
        // below.
        prefetch_values(v + static_cast<int64_t>(begin) * padded, (longest - begin) * padded);
        for (int b = begin / 16; 16 * b < longest; ++b) {
            score_block<Cache, Q>(q, t.head_dim, k + 16 * b * t.head_dim, Cache::kSteps ? k_steps + 16 * b : nullptr,
                                  scores + 16 * b);
        }
        float before[16];
        store(before, load(peak));
        for (int j = 0; j < Q; ++j) {
            const int own_end = tail ? last[j] % kTile + 1 : kTile;
            const float top = scale_scores(scores + j * kTile, begin, own_end, t.scale, t.soft_cap);
            peak[j] = top > peak[j] ? top : peak[j];
        }
        store(decay, exp(sub(load(before), load(peak))));
        for (int j = 0; j < Q; ++j) {
            total[j] = total[j] * decay[j] + soften<Cache>(scores + j * kTile, peak[j], v_steps);
        }
        if (!tail) prefetch_values(tile_of(t.k_tiles, tile + 1), kTile * t.head_dim);
        weigh_values<Cache, Q>(scores, decay, v, padded, begin, end, values);
        for (int j = 0; j < Q && tail; ++j) {  // positions that only the later rows attend to
            const int own_end = last[j] % kTile + 1;
            if (own_end > end) weigh_rest<Cache>(scores + j * kTile, v, padded, end, own_end, values + j * padded);
        }
    }
    for (int j = 0; j < Q; ++j) {
        const int row = (from + j) / t.heads, head = (from + j) % t.heads;
        float* out = t.out + row * t.out_stride + static_cast<int64_t>(head) * t.head_dim;
        const float inverse = 1.0f / total[j];
        for (int d = 0; d < t.head_dim; ++d) out[d] = values[j * padded + d] * inverse;
    }
}

template <class Cache>
void attend_all(const AttendTask& task) {
    const int queries = task.rows * task.heads;
    // Each part reads all of K and V, so there are as few as possible, of even sizes.
    const int parts = (queries + kAttendQueries - 1) / kAttendQueries;
    for (int part = 0, from = 0; part < parts; ++part) {
        const int count = (queries - from) / (parts - part);
        switch (count) {
            case 1:
                attend_queries<Cache, 1>(task, from);
                break;
            case 2:
                attend_queries<Cache, 2>(task, from);
                break;
            case 3:
                attend_queries<Cache, 3>(task, from);
                break;
            case 4:
                attend_queries<Cache, 4>(task, from);
                break;
            case 5:
                attend_queries<Cache, 5>(task, from);
                break;
            case 6:
                attend_queries<Cache, 6>(task, from);
                break;
            case 7:
                attend_queries<Cache, 7>(task, from);
                break;
            case 8:
                attend_queries<Cache, 8>(task, from);
                break;
            default:
                __builtin_trap();
        }
        from += count;
    }
}

}  // namespace

void attend(const AttendTask& task) {
    if (task.coded) {
        attend_all<Codes>(task);
    } else {
        attend_all<Halves>(task);
    }
}

}  // namespace foresay::kernels::cpu::FORESAY_ISA
