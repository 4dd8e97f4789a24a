// kernels/cpu/isa/linear.cpp: y = W x over panels, for 1 to 16 rows of x at a time.
//
// Law 1: the sum for an output and a row runs over groups of 32 inputs in increasing order, one fused multiply-add per
// group (per half group and minimum where the encoding has them); within a group it is an exact integer. Neither the
// number of rows nor the panel's place enters, so the bits of a row are the same at every width.
//
// One row is bound by memory: the loop streams through the panel and asks for it ahead. Many rows are bound by the
// int8 dot products: codes are unpacked once into eight registers and used by every row, each row's activations are
// broadcast operands.

#include "kernels/cpu/isa/table.h"

namespace foresay::kernels::cpu::FORESAY_ISA {
namespace {

using std::int32_t;
using std::int64_t;
using std::int8_t;
using std::uint8_t;

// How far ahead weights are asked for, in bytes: far ahead into the second-level cache, since the first has no room for
// what many rows take long to use, and shortly before use into the first where few rows use them up quickly. Chosen by
// measuring over models that fit the caches and models that do not.
constexpr int kIntoL2 = 16384, kIntoL1 = 2048;
constexpr int kFewRows = 4;

template <int M, int Bytes>
FORESAY_INLINE void prefetch_block(const uint8_t* block) {
    for (int i = 0; i < Bytes; i += 64) {
        prefetch_l2(block + kIntoL2 + i);
        if constexpr (M <= kFewRows) prefetch(block + kIntoL1 + i);
    }
}

// Codes of a group of 32 inputs; vector g holds inputs 4 g .. 4 g + 3 of 16 outputs.
struct Group {
    B code[8];
};

FORESAY_INLINE Group unpack4(const uint8_t* p) {
    Group group;
    for (int j = 0; j < 4; ++j) {
        const B both = load_bytes(p + 64 * j);
        group.code[j] = and_bytes(both, 15);
        group.code[j + 4] = and_bytes(shift_bytes<4>(both), 15);
    }
    return group;
}

FORESAY_INLINE Group unpack5(const uint8_t* p) {
    Group group = unpack4(p);
    const B high = load_bytes(p + 256);
    group.code[0] = or_bytes(group.code[0], and_bytes(shift_bytes<-4>(high), 16));
    group.code[1] = or_bytes(group.code[1], and_bytes(shift_bytes<-3>(high), 16));
    group.code[2] = or_bytes(group.code[2], and_bytes(shift_bytes<-2>(high), 16));
    group.code[3] = or_bytes(group.code[3], and_bytes(shift_bytes<-1>(high), 16));
    group.code[4] = or_bytes(group.code[4], and_bytes(high, 16));
    group.code[5] = or_bytes(group.code[5], and_bytes(shift_bytes<1>(high), 16));
    group.code[6] = or_bytes(group.code[6], and_bytes(shift_bytes<2>(high), 16));
    group.code[7] = or_bytes(group.code[7], and_bytes(shift_bytes<3>(high), 16));
    return group;
}

FORESAY_INLINE Group unpack6(const uint8_t* p) {
    Group group = unpack4(p);
    for (int h = 0; h < 2; ++h) {
        const B high = load_bytes(p + 256 + 64 * h);
        group.code[4 * h] = or_bytes(group.code[4 * h], and_bytes(shift_bytes<-4>(high), 48));
        group.code[4 * h + 1] = or_bytes(group.code[4 * h + 1], and_bytes(shift_bytes<-2>(high), 48));
        group.code[4 * h + 2] = or_bytes(group.code[4 * h + 2], and_bytes(high, 48));
        group.code[4 * h + 3] = or_bytes(group.code[4 * h + 3], and_bytes(shift_bytes<2>(high), 48));
    }
    return group;
}

FORESAY_INLINE Group load8(const uint8_t* p) {
    Group group;
    for (int g = 0; g < 8; ++g) group.code[g] = load_bytes(p + 64 * g);
    return group;
}

FORESAY_INLINE I dot_group(I acc, const Group& group, const int8_t* x) {
    for (int g = 0; g < 8; ++g) acc = dot(acc, group.code[g], x + 4 * g);
    return acc;
}

// The inputs' scale is shared by 128 of them (kScaleInputs), so a row's sum runs through its codes first: `part` holds
// scale-free sums of such a stretch, and one multiply-add per stretch brings it to `acc`.
template <int M>
FORESAY_INLINE void clear(F (&part)[M]) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) part[m] = set(0.0f);
}
template <int M>
FORESAY_INLINE void add_parts(const F (&part)[M], const float* scale, F (&acc)[M]) {
#pragma GCC unroll 16
    for (int m = 0; m < M; ++m) acc[m] = fma(part[m], set(scale[m]), acc[m]);
}

struct CodesQ4 {
    FORESAY_INLINE Group unpack(const uint8_t* p) { return unpack4(p); }
    FORESAY_INLINE I sum(const Group& group, const InputTile& x, int64_t at) {
        return dot_group(set_int(x.minus8[at]), group, x.q + 32 * at);
    }
};
struct CodesQ8 {
    FORESAY_INLINE Group unpack(const uint8_t* p) { return load8(p); }
    FORESAY_INLINE I sum(const Group& group, const InputTile& x, int64_t at) {
        I sum = set_int(wide_seed(x.minus128[at]));
        for (int g = 0; g < 8; ++g) sum = dot_wide(sum, group.code[g], x.q + 32 * at + 4 * g);
        return sum;
    }
};

// Blocks of 64 inputs with a float16 scale per output and group of 32. `Codes` unpacks a group and sums its products.
template <int M, int BlockBytes, class Codes>
FORESAY_INLINE void scaled_blocks(const uint8_t* p, int blocks, const InputTile& x, F (&acc)[M]) {
    constexpr int kGroupBytes = (BlockBytes - 64) / 2;
    for (int first = 0; first < blocks; first += 2) {
        F part[M];
        clear<M>(part);
        const int end = first + 2 < blocks ? first + 2 : blocks;
        for (int b = first; b < end; ++b, p += BlockBytes) {
            prefetch_block<M, BlockBytes>(p);
            for (int h = 0; h < 2; ++h) {
                const Group group = Codes::unpack(p + 64 + kGroupBytes * h);
                const F d = load_half(p + 32 * h);
                const int64_t at = static_cast<int64_t>(2 * b + h) * M;
#pragma GCC unroll 16
                for (int m = 0; m < M; ++m) part[m] = fma(to_float(Codes::sum(group, x, at + m)), d, part[m]);
            }
        }
        add_parts<M>(part, x.scale + static_cast<int64_t>(first / 2) * M, acc);
    }
}

template <int M>
FORESAY_INLINE void q4_0(const uint8_t* p, int blocks, const InputTile& x, F (&acc)[M]) {
    scaled_blocks<M, 576, CodesQ4>(p, blocks, x, acc);
}

template <int M>
FORESAY_INLINE void q8_0(const uint8_t* p, int blocks, const InputTile& x, F (&acc)[M]) {
    scaled_blocks<M, 1088, CodesQ8>(p, blocks, x, acc);
}

template <int M, bool Five>
FORESAY_INLINE void q45_k(const uint8_t* p, int blocks, const InputTile& x, F (&acc)[M]) {
    constexpr int kGroupBytes = Five ? 320 : 256;
    constexpr int kBlockBytes = 256 + 8 * kGroupBytes;
    for (int b = 0; b < blocks; ++b, p += kBlockBytes) {
        const F d = load_half(p), dmin = load_half(p + 32);
        prefetch_block<M, 256>(p);
        for (int half = 0; half < 2; ++half) {
            F part[M];
            clear<M>(part);
            for (int pair = 2 * half; pair < 2 * half + 2; ++pair) {
                const uint8_t* s = p + 64 + 48 * pair;
                const I high = load_u8(s + 32);
                for (int h = 0; h < 2; ++h) {
                    const uint8_t* codes = p + 256 + kGroupBytes * (2 * pair + h);
                    prefetch_block<M, kGroupBytes>(codes);
                    const Group group = Five ? unpack5(codes) : unpack4(codes);
                    const I low = load_u8(s + 16 * h);
                    const I high2 = h ? shift_right<4>(high) : high;
                    const F scale = mul(d, to_float(or_int(and_int(low, 15), shift_left<4>(and_int(high2, 3)))));
                    const F min = mul(dmin, to_float(or_int(shift_right<4>(low), shift_left<2>(and_int(high2, 12)))));
                    const int64_t at = static_cast<int64_t>(8 * b + 2 * pair + h) * M;
#pragma GCC unroll 16
                    for (int m = 0; m < M; ++m) {
                        const I sum = dot_group(set_int(0), group, x.q + 32 * (at + m));
                        part[m] = fma(to_float(sum), scale, part[m]);
                        part[m] = fnma(min, set(x.sum[at + m]), part[m]);
                    }
                }
            }
            add_parts<M>(part, x.scale + static_cast<int64_t>(2 * b + half) * M, acc);
        }
    }
}

template <int M>
FORESAY_INLINE void q6_k(const uint8_t* p, int blocks, const InputTile& x, F (&acc)[M]) {
    for (int b = 0; b < blocks; ++b, p += 3392) {
        const F d = load_half(p);
        prefetch_block<M, 320>(p);
        for (int half = 0; half < 2; ++half) {
            F part[M];
            clear<M>(part);
            for (int g = 4 * half; g < 4 * half + 4; ++g) {
                const uint8_t* codes = p + 320 + 384 * g;
                prefetch_block<M, 384>(codes);
                const Group group = unpack6(codes);
                const F scale0 = mul(d, to_float(load_i8(p + 64 + 32 * g)));
                const F scale1 = mul(d, to_float(load_i8(p + 80 + 32 * g)));
                const int64_t at = static_cast<int64_t>(8 * b + g) * M;
#pragma GCC unroll 16
                for (int m = 0; m < M; ++m) {
                    I first = set_int(x.minus32[2 * (at + m)]), second = set_int(x.minus32[2 * (at + m) + 1]);
                    const int8_t* q = x.q + 32 * (at + m);
                    for (int j = 0; j < 4; ++j) first = dot(first, group.code[j], q + 4 * j);
                    for (int j = 4; j < 8; ++j) second = dot(second, group.code[j], q + 4 * j);
                    part[m] = fma(to_float(first), scale0, part[m]);
                    part[m] = fma(to_float(second), scale1, part[m]);
                }
            }
            add_parts<M>(part, x.scale + static_cast<int64_t>(2 * b + half) * M, acc);
        }
    }
}

struct LoadF32 {
    static constexpr int kBytes = 64;
    FORESAY_INLINE F get(const uint8_t* p) { return load(reinterpret_cast<const float*>(p)); }
};
struct LoadF16 {
    static constexpr int kBytes = 32;
    FORESAY_INLINE F get(const uint8_t* p) { return load_half(p); }
};
struct LoadBf16 {
    static constexpr int kBytes = 32;
    FORESAY_INLINE F get(const uint8_t* p) { return load_bf16(p); }
};

// Float weights: even and odd inputs in two sums, so that the additions of one row overlap.
template <int M, class Load>
FORESAY_INLINE void floats(const uint8_t* p, int inputs, const InputTile& x, F (&acc)[M]) {
    F odd[M];
    clear<M>(odd);
    const float* v = x.values;
    int k = 0;
    for (; k + 2 <= inputs; k += 2, p += 2 * Load::kBytes, v += 2 * M) {
        prefetch_block<M, 2 * Load::kBytes>(p);
        const F w0 = Load::get(p), w1 = Load::get(p + Load::kBytes);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
            acc[m] = fma(w0, set(v[m]), acc[m]);
            odd[m] = fma(w1, set(v[M + m]), odd[m]);
        }
    }
    if (k < inputs) {
        const F w = Load::get(p);
        for (int m = 0; m < M; ++m) acc[m] = fma(w, set(v[m]), acc[m]);
    }
    for (int m = 0; m < M; ++m) acc[m] = add(acc[m], odd[m]);
}

template <int M>
FORESAY_INLINE void panel(Encoding encoding, const uint8_t* p, int blocks, const InputTile& x, F (&acc)[M]) {
    clear<M>(acc);
    switch (encoding) {
        case Encoding::q4_0:
            q4_0<M>(p, blocks, x, acc);
            break;
        case Encoding::q8_0:
            q8_0<M>(p, blocks, x, acc);
            break;
        case Encoding::q4_k:
            q45_k<M, false>(p, blocks, x, acc);
            break;
        case Encoding::q5_k:
            q45_k<M, true>(p, blocks, x, acc);
            break;
        case Encoding::q6_k:
            q6_k<M>(p, blocks, x, acc);
            break;
        case Encoding::f32:
            floats<M, LoadF32>(p, blocks, x, acc);
            break;
        case Encoding::f16:
            floats<M, LoadF16>(p, blocks, x, acc);
            break;
        case Encoding::bf16:
            floats<M, LoadBf16>(p, blocks, x, acc);
            break;
    }
}

template <int M>
void linear_rows(const PanelRange& w, const InputTile& x, float* y, int64_t y_stride, Store mode) {
    for (int p = w.begin; p < w.end; ++p) {
        F acc[M];
        panel<M>(w.encoding, w.data + p * w.panel_bytes, w.blocks, x, acc);
        for (int m = 0; m < M; ++m) {
            if (m >= x.rows) break;
            float* out = y + m * y_stride + 16 * p;
            store(out, mode == Store::add ? add(load(out), acc[m]) : acc[m]);
        }
    }
}

FORESAY_INLINE F silu(F v) { return div(v, add(set(1.0f), exp(sub(set(0.0f), v)))); }
FORESAY_INLINE F gelu_tanh(F v) {
    const F cubic = mul(v, fma(mul(v, v), set(0.044715f), set(1.0f)));
    return mul(mul(v, set(0.5f)), add(set(1.0f), tanh(mul(cubic, set(0.7978845608f)))));
}

template <int M>
void gated_rows(const PanelRange& gate, const PanelRange& up, const InputTile& x, float* y, int64_t y_stride,
                bool gelu) {
    for (int p = gate.begin; p < gate.end; ++p) {
        F g[M], u[M];
        panel<M>(gate.encoding, gate.data + p * gate.panel_bytes, gate.blocks, x, g);
        panel<M>(up.encoding, up.data + p * up.panel_bytes, up.blocks, x, u);
        for (int m = 0; m < M; ++m) {
            if (m >= x.rows) break;
            store(y + m * y_stride + 16 * p, mul(gelu ? gelu_tanh(g[m]) : silu(g[m]), u[m]));
        }
    }
}

// Calls fn with the tile's stride as a constant.
template <class Fn>
FORESAY_INLINE void with_stride(int stride, Fn fn) {
    switch (stride) {
        case 1:
            return fn.template operator()<1>();
        case 2:
            return fn.template operator()<2>();
        case 3:
            return fn.template operator()<3>();
        case 4:
            return fn.template operator()<4>();
#if defined(FORESAY_ISA_AVX512)
        case 5:
            return fn.template operator()<5>();
        case 6:
            return fn.template operator()<6>();
        case 7:
            return fn.template operator()<7>();
        case 8:
            return fn.template operator()<8>();
        case 10:
            return fn.template operator()<10>();
        case 12:
            return fn.template operator()<12>();
        case 16:
            return fn.template operator()<16>();
#endif
        default:
            __builtin_trap();
    }
}

}  // namespace

int tile_stride(int rows) {
    if (rows > 12) return 16;
    if (rows > 10) return 12;
    return rows > 8 ? 10 : rows;
}

void linear(const PanelRange& w, const InputTile& x, float* y, int64_t y_stride, Store mode) {
    with_stride(x.stride, [&]<int M>() { linear_rows<M>(w, x, y, y_stride, mode); });
}

void gated(const PanelRange& gate, const PanelRange& up, const InputTile& x, float* y, int64_t y_stride, bool gelu) {
    with_stride(x.stride, [&]<int M>() { gated_rows<M>(gate, up, x, y, y_stride, gelu); });
}

}  // namespace foresay::kernels::cpu::FORESAY_ISA
