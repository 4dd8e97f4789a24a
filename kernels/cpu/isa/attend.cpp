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
// Formats: keys and values are widened to float32 in registers. With codes, a key's step multiplies its score and a
// value's step multiplies its weight, so the inner loops gain conversions and nothing else. Each type of keys and of
// values has inner loops of its own, called once per tile. With fewer than 8 bits queries come rotated, and outputs
// leave rotated.
//
// Law 1: tiles begin at multiples of 64 and are processed in increasing position; peak, total and values are updated
// once per tile. A row's bits depend on its own positions only. Positions that were never written may hold
// anything, even NaN:
// their scores are replaced, and their values are not read.

#include "kernels/cpu/isa/table.h"
#include "kernels/kv/list.h"

namespace foresay::kernels::cpu::FORESAY_ISA {
namespace {

using std::int64_t;
using std::uint8_t;

constexpr int kTile = 64;

// The types of keys and values (kernels/cpu/cpu_memory.h has their layout). keys() widens values d, d + 1, ... of 16
// keys, kGroup of them, and values() 16 values of a value vector. If kSteps, the caller must still multiply by the step
// of their position.
//   column_bytes(n)   bytes of a key of n values           record(n)   bytes of a value vector of n, a multiple of 16
struct Halves {
    static constexpr bool kSteps = false;
    static constexpr int kGroup = 2;
    FORESAY_INLINE int column_bytes(int n) { return 2 * n; }
    FORESAY_INLINE int record(int n) { return 2 * n; }
    FORESAY_INLINE F key(const uint8_t* block, int d) { return load_half(block + 32 * d); }
    FORESAY_INLINE void keys(const uint8_t* block, int, int d, F (&k)[kGroup]) {
        k[0] = key(block, d);
        k[1] = key(block, d + 1);
    }
    FORESAY_INLINE F values(const uint8_t* v, int, int d) { return load_half(v + 2 * d); }
};
struct Codes {
    static constexpr bool kSteps = true;
    static constexpr int kGroup = 2;
    FORESAY_INLINE int column_bytes(int n) { return n; }
    FORESAY_INLINE int record(int n) { return n; }
    FORESAY_INLINE F widen(const uint8_t* p) { return to_float(load_i8(reinterpret_cast<const std::int8_t*>(p))); }
    FORESAY_INLINE F key(const uint8_t* block, int d) { return widen(block + 16 * d); }
    FORESAY_INLINE void keys(const uint8_t* block, int, int d, F (&k)[kGroup]) {
        k[0] = key(block, d);
        k[1] = key(block, d + 1);
    }
    FORESAY_INLINE F values(const uint8_t* v, int, int d) { return widen(v + d); }
};
// Heads are whole groups of four (check_kv).
template <int kBits>
struct LowCodes {
    static_assert(kBits == 4 || kBits == 6);
    static constexpr bool kSteps = true;
    static constexpr bool kHigh = kBits > 4;
    static constexpr int kGroup = kHigh ? 4 : 2;
    FORESAY_INLINE int column_bytes(int n) { return n / 2 + (kHigh ? n / 4 : 0); }
    FORESAY_INLINE int low_bytes(int n) { return (n + 31) / 32 * 16; }
    FORESAY_INLINE int record(int n) { return low_bytes(n) + (kHigh ? (n + 63) / 64 * 16 : 0); }
    FORESAY_INLINE F centred(I code) { return to_float(add_int(code, set_int(-(1 << (kBits - 1))))); }
    FORESAY_INLINE void keys(const uint8_t* block, int n, int d, F (&k)[kGroup]) {
        const I first = load_u8(block + 8 * d);
        if constexpr (kHigh) {
            const I second = load_u8(block + 8 * d + 16), high = load_u8(block + 8 * n + 4 * d);
            k[0] = centred(or_int(and_int(first, 15), and_int(shift_left<4>(high), 48)));
            k[1] = centred(or_int(shift_right<4>(first), and_int(shift_left<2>(high), 48)));
            k[2] = centred(or_int(and_int(second, 15), and_int(high, 48)));
            k[3] = centred(or_int(shift_right<4>(second), and_int(shift_right<2>(high), 48)));
        } else {
            k[0] = centred(and_int(first, 15));
            k[1] = centred(shift_right<4>(first));
        }
    }
    // The bits `mask` at place `shift`, times `worth`.
    FORESAY_INLINE F bits_of(I from, int mask, int shift, float worth) {
        return mul(to_float(and_int(from, mask << shift)), set(worth / static_cast<float>(1 << shift)));
    }
    FORESAY_INLINE F values(const uint8_t* v, int n, int d) {
        // Bits are moved by factors, exactly: by how many places is known at run time only.
        const F low = bits_of(load_u8(v + d / 32 * 16), 15, d / 16 % 2 * 4, 1.0f);
        if constexpr (!kHigh) return sub(low, set(8.0f));
        const F high = bits_of(load_u8(v + low_bytes(n) + d / 64 * 16), 3, d / 16 % 4 * 2, 16.0f);
        return sub(add(low, high), set(32.0f));
    }
};
template <int kBits>
struct CacheOf {
    using Type = LowCodes<kBits>;
};
template <>
struct CacheOf<16> {
    using Type = Halves;
};
template <>
struct CacheOf<8> {
    using Type = Codes;
};

// Calls body(Cache()) with that of a type.
template <class Body, int kAt = 0>
FORESAY_INLINE void with_cache(KvType type, const Body& body) {
    if constexpr (kAt < AllKvTypes::kCount) {
        if (static_cast<int>(type) == kAt) return body(typename CacheOf<AllKvTypes::kBits[kAt]>::Type());
        with_cache<Body, kAt + 1>(type, body);
    }
}

// scores[j, 64] of 16 positions: q[j] . k, with one sum for the even and one for the odd dimensions of the head. The
// lanes are positions, so a step is one factor at the end.
template <class Cache, int Q>
FORESAY_INLINE void score_block(const float* const* q, int head_dim, const uint8_t* block, const float* steps,
                                float* scores) {
    F even[Q], odd[Q];
#pragma GCC unroll 8
    for (int j = 0; j < Q; ++j) even[j] = odd[j] = set(0.0f);
    int d = 0;
    for (; d + Cache::kGroup <= head_dim; d += Cache::kGroup) {
        F k[Cache::kGroup];
        Cache::keys(block, head_dim, d, k);
#pragma GCC unroll 2
        for (int i = 0; i < Cache::kGroup; i += 2) {
#pragma GCC unroll 8
            for (int j = 0; j < Q; ++j) {
                even[j] = fma(k[i], set(q[j][d + i]), even[j]);
                odd[j] = fma(k[i + 1], set(q[j][d + i + 1]), odd[j]);
            }
        }
    }
    if constexpr (requires { Cache::key(block, d); }) {  // other heads are whole groups
        if (d < head_dim) {
            const F k0 = Cache::key(block, d);
#pragma GCC unroll 8
            for (int j = 0; j < Q; ++j) even[j] = fma(k0, set(q[j][d]), even[j]);
        }
    }
#pragma GCC unroll 8
    for (int j = 0; j < Q; ++j) {
        const F sum = add(even[j], odd[j]);
        store(scores + j * kTile, Cache::kSteps ? mul(sum, load(steps)) : sum);
    }
}

// The same for the blocks [begin, end) of a tile, whose keys and their steps begin at k.
template <class Cache, int Q>
__attribute__((noinline)) void score_tile(const float* const* q, int head_dim, const uint8_t* k, int begin, int end,
                                          float* scores) {
    const int block_bytes = 16 * Cache::column_bytes(head_dim);
    const auto* steps = reinterpret_cast<const float*>(k + kTile / 16 * block_bytes);
    for (int b = begin; b < end; ++b) {
        score_block<Cache, Q>(q, head_dim, k + b * block_bytes, steps + 16 * b, scores + 16 * b);
    }
}

// values[j, 16 V of the head] = values * decay[j] + sum over positions [begin, end) of weight * v. Each sum is a chain
// of dependent additions; Q * V independent chains hide their latency.
template <class Cache, int Q, int V>
FORESAY_INLINE void weigh_columns(const float* weights, const float* decay, const uint8_t* v, int padded, int d,
                                  int begin, int end, float* values) {
    const int record = Cache::record(padded);
    F acc[Q][V];
#pragma GCC unroll 8
    for (int j = 0; j < Q; ++j) {
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i) acc[j][i] = mul(load(values + j * padded + d + 16 * i), set(decay[j]));
    }
    for (int p = begin; p < end; ++p) {
        F row[V];
#pragma GCC unroll 8
        for (int i = 0; i < V; ++i) row[i] = Cache::values(v + static_cast<int64_t>(p) * record, padded, d + 16 * i);
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
        for (int i = 0; i < V; ++i) store(values + j * padded + d + 16 * i, acc[j][i]);
    }
}

template <class Cache, int Q>
__attribute__((noinline)) void weigh_values(const float* weights, const float* decay, const uint8_t* v, int padded,
                                            int begin, int end, float* values) {
    constexpr int V = Q <= 4 ? 4 : 2;
    int d = 0;
    for (; d + 16 * V <= padded; d += 16 * V) {
        weigh_columns<Cache, Q, V>(weights, decay, v, padded, d, begin, end, values);
    }
    for (; d < padded; d += 16) weigh_columns<Cache, Q, 1>(weights, decay, v, padded, d, begin, end, values);
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
// the steps of the values, if there are any; the sum is not.
FORESAY_INLINE float soften(float* scores, float peak, const float* steps) {
    F sum = set(0.0f);
#pragma GCC unroll 4
    for (int b = 0; b < 4; ++b) {
        const F weight = exp(sub(load(scores + 16 * b), set(peak)));
        store(scores + 16 * b, steps != nullptr ? mul(weight, load(steps + 16 * b)) : weight);
        sum = add(sum, weight);
    }
    return sum_lanes(sum);
}

FORESAY_INLINE void prefetch_bytes(const uint8_t* p, int count) {
    for (int i = 0; i < count; i += 64) prefetch(p + i);
}

// Runs queries [from, from + Q) of the task, numbered row by row, over all tiles.
template <int Q>
void attend_queries(const AttendTask& t, int from) {
    const int padded = (t.head_dim + 15) / 16 * 16;
    int k_bytes = 0, record = 0;  // of a tile's keys, and of a value vector
    with_cache(t.k_type, [&](auto cache) { k_bytes = kTile * decltype(cache)::column_bytes(t.head_dim); });
    with_cache(t.v_type, [&](auto cache) { record = decltype(cache)::record(padded); });
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
    prefetch_bytes(t.k_tiles[0], k_bytes);
    for (int tile = first_tile; tile <= last_tile; ++tile) {
        const bool tail = tile == last_tile;
        const int begin = tile == first_tile ? t.first % kTile : 0;
        const int end = tail ? last[0] % kTile + 1 : kTile, longest = tail ? last[Q - 1] % kTile + 1 : kTile;
        const uint8_t *k = t.k_tiles[tile - first_tile], *v = t.v_tiles[tile - first_tile];
        // Follow the values of the page.
        const auto* v_steps = t.v_type == KvType::f16 ? nullptr : reinterpret_cast<const float*>(v + kTile * record);
        // Tiles are too short for the hardware prefetcher. Prefetch this tile's values here, the next tile's keys
        // below.
        prefetch_bytes(v + begin * record, (longest - begin) * record);
        with_cache(t.k_type, [&](auto cache) {
            score_tile<decltype(cache), Q>(q, t.head_dim, k, begin / 16, (longest + 15) / 16, scores);
        });
        float before[16];
        store(before, load(peak));
        for (int j = 0; j < Q; ++j) {
            const int own_end = tail ? last[j] % kTile + 1 : kTile;
            const float top = scale_scores(scores + j * kTile, begin, own_end, t.scale, t.soft_cap);
            peak[j] = top > peak[j] ? top : peak[j];
        }
        store(decay, exp(sub(load(before), load(peak))));
        for (int j = 0; j < Q; ++j) {
            total[j] = total[j] * decay[j] + soften(scores + j * kTile, peak[j], v_steps);
        }
        if (!tail) prefetch_bytes(t.k_tiles[tile + 1 - first_tile], k_bytes);
        with_cache(t.v_type,
                   [&](auto cache) { weigh_values<decltype(cache), Q>(scores, decay, v, padded, begin, end, values); });
        for (int j = 0; j < Q && tail; ++j) {  // positions that only the later rows attend to
            const int own_end = last[j] % kTile + 1;
            if (own_end <= end) continue;
            const float keep = 1.0f;
            with_cache(t.v_type, [&](auto cache) {
                weigh_values<decltype(cache), 1>(scores + j * kTile, &keep, v, padded, end, own_end,
                                                 values + j * padded);
            });
        }
    }
    for (int j = 0; j < Q; ++j) {
        const int row = (from + j) / t.heads, head = (from + j) % t.heads;
        float* out = t.out + row * t.out_stride + static_cast<int64_t>(head) * t.head_dim;
        const float inverse = 1.0f / total[j];
        for (int d = 0; d < t.head_dim; ++d) out[d] = values[j * padded + d] * inverse;
    }
}

}  // namespace

void attend(const AttendTask& task) {
    const int queries = task.rows * task.heads;
    // Each part reads all of K and V, so there are as few as possible, of even sizes.
    const int parts = (queries + kAttendQueries - 1) / kAttendQueries;
    for (int part = 0, from = 0; part < parts; ++part) {
        const int count = (queries - from) / (parts - part);
        switch (count) {
            case 1:
                attend_queries<1>(task, from);
                break;
            case 2:
                attend_queries<2>(task, from);
                break;
            case 3:
                attend_queries<3>(task, from);
                break;
            case 4:
                attend_queries<4>(task, from);
                break;
            case 5:
                attend_queries<5>(task, from);
                break;
            case 6:
                attend_queries<6>(task, from);
                break;
            case 7:
                attend_queries<7>(task, from);
                break;
            case 8:
                attend_queries<8>(task, from);
                break;
            default:
                __builtin_trap();
        }
        from += count;
    }
}

}  // namespace foresay::kernels::cpu::FORESAY_ISA
