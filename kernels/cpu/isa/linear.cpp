// kernels/cpu/isa/linear.cpp: y = W x over panels, for 1 to 16 rows of x at a time.
//
// Data flow: a thread takes whole panels, 16 outputs each. For a panel it streams through the blocks (panel_blocks.h)
// in order; for a group of 32 inputs it unpacks the codes into eight vectors `Group` (vector g: inputs 4 g .. 4 g + 3
// of the 16 outputs) and multiplies them with each row's int8 codes, four bytes broadcast to all lanes:
//
//     int32 sums of the group  -> float, times the weights' scale, += part[m]    per group of 32 (or 16) inputs
//     part[m], times the scale of the activations, += acc[m]                     per 128 inputs (kScaleInputs)
//     acc[m] -> y[m, 16 outputs]                                                 at the end of the panel
//
// Zero points (8, 32 or 128) are not subtracted from the codes. The integer sum starts at minus the zero point times
// the sum of the row's codes instead, which the tile has precomputed (minus8, minus32, minus128); other zero points are
// shares of these.
//
// Law 1: the sum for an output and a row runs over groups in increasing order, one fused multiply-add per group (per
// half group, and one for the minimum, where the type has them); within a group it is an exact integer. Neither the
// number of rows nor the position of the panel matters, so a row has the same bits in tiles of every width.
//
// One row is bound by memory, so the loop streams through the panel and prefetches. Many rows are bound by the int8 dot
// products, so codes are unpacked once into eight registers that every row uses.

#include <cstddef>

#include "kernels/cpu/isa/table.h"
#include "kernels/cpu/panel_blocks.h"

namespace foresay::kernels::cpu::FORESAY_ISA {
namespace {

using std::int32_t;
using std::int64_t;
using std::int8_t;
using std::uint16_t;
using std::uint8_t;

// Prefetch distances in bytes: far ahead into L2, and a short way ahead into L1 if there are few rows. Many rows take
// so long per block that L1 would evict it before use. Measured on models that fit the caches and on models that do
// not.
constexpr int kIntoL2 = 16384, kIntoL1 = 2048;
constexpr int kFewRows = 4;

// Prefetches what follows the `Bytes` bytes at `at` at those distances.
template <int M, int Bytes>
FORESAY_INLINE void prefetch_ahead(const void* at) {
    const auto* p = static_cast<const uint8_t*>(at);
    for (int i = 0; i < Bytes; i += 64) {
        prefetch_l2(p + kIntoL2 + i);
        if constexpr (M <= kFewRows) prefetch(p + kIntoL1 + i);
    }
}

// Unpacked codes of a group of 32 inputs; vector g holds inputs 4 g .. 4 g + 3 of 16 outputs.
struct Group {
    B code[8];
};

FORESAY_INLINE Group unpack_nibbles(const uint8_t (&low)[4][kVectorBytes]) {
    Group group;
    for (int j = 0; j < 4; ++j) {
        const B both = load_bytes(low[j]);
        group.code[j] = and_bytes(both, 15);
        group.code[j + 4] = and_bytes(shift_bytes<4>(both), 15);
    }
    return group;
}

FORESAY_INLINE Group unpack(const Codes4& codes) { return unpack_nibbles(codes.low); }

FORESAY_INLINE Group unpack(const Codes5& codes) {
    Group group = unpack_nibbles(codes.low);
    const B high = load_bytes(codes.fifth);
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

FORESAY_INLINE Group unpack_pairs(const uint8_t (&bytes)[2][kVectorBytes]) {
    Group group;
    for (int h = 0; h < 2; ++h) {
        const B low = load_bytes(bytes[h]);
        group.code[4 * h] = and_bytes(low, 3);
        group.code[4 * h + 1] = and_bytes(shift_bytes<2>(low), 3);
        group.code[4 * h + 2] = and_bytes(shift_bytes<4>(low), 3);
        group.code[4 * h + 3] = and_bytes(shift_bytes<6>(low), 3);
    }
    return group;
}

FORESAY_INLINE Group unpack(const Codes2& codes) { return unpack_pairs(codes.low); }

FORESAY_INLINE Group unpack(const Codes3& codes) {
    Group group = unpack_pairs(codes.low);
    const B high = load_bytes(codes.third);
    group.code[0] = or_bytes(group.code[0], and_bytes(shift_bytes<-2>(high), 4));
    group.code[1] = or_bytes(group.code[1], and_bytes(shift_bytes<-1>(high), 4));
    group.code[2] = or_bytes(group.code[2], and_bytes(high, 4));
    group.code[3] = or_bytes(group.code[3], and_bytes(shift_bytes<1>(high), 4));
    group.code[4] = or_bytes(group.code[4], and_bytes(shift_bytes<2>(high), 4));
    group.code[5] = or_bytes(group.code[5], and_bytes(shift_bytes<3>(high), 4));
    group.code[6] = or_bytes(group.code[6], and_bytes(shift_bytes<4>(high), 4));
    group.code[7] = or_bytes(group.code[7], and_bytes(shift_bytes<5>(high), 4));
    return group;
}

FORESAY_INLINE Group unpack(const Codes6& codes) {
    Group group = unpack_nibbles(codes.low);
    for (int h = 0; h < 2; ++h) {
        const B high = load_bytes(codes.upper[h]);
        group.code[4 * h] = or_bytes(group.code[4 * h], and_bytes(shift_bytes<-4>(high), 48));
        group.code[4 * h + 1] = or_bytes(group.code[4 * h + 1], and_bytes(shift_bytes<-2>(high), 48));
        group.code[4 * h + 2] = or_bytes(group.code[4 * h + 2], and_bytes(high, 48));
        group.code[4 * h + 3] = or_bytes(group.code[4 * h + 3], and_bytes(shift_bytes<2>(high), 48));
    }
    return group;
}

FORESAY_INLINE Group unpack(const Codes8& codes) {
    Group group;
    for (int g = 0; g < 8; ++g) group.code[g] = load_bytes(codes.vectors[g]);
    return group;
}

// Of any block of two groups: the codes as unsigned bytes.
template <class Block>
FORESAY_INLINE Group codes_of(const Block& block, int h) {
    return unpack(block.codes[h]);
}
// Twice the number of each code, plus 12.
FORESAY_INLINE Group codes_of(const PanelMXFP4& block, int h) {
    constexpr uint8_t kNumbers[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
    Group group = unpack(block.codes[h]);
    for (B& code : group.code) code = look_up(code, kNumbers);
    return group;
}
// Each number plus 128, as Q8_0 has it.
FORESAY_INLINE Group codes_of(const PanelIQ4_NL& block, int h) {
    constexpr uint8_t kNumbers[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
    Group group = unpack(block.codes[h]);
    for (B& code : group.code) code = look_up(code, kNumbers);
    return group;
}
template <class Block>
FORESAY_INLINE F scale_of(const Block& block, int h) {
    return load_half(block.d[h]);
}
FORESAY_INLINE F scale_of(const PanelMXFP4& block, int h) { return load_bf16(block.d[h]); }

FORESAY_INLINE I dot_group(I acc, const Group& group, const int8_t* x) {
    for (int g = 0; g < 8; ++g) acc = dot(acc, group.code[g], x + 4 * g);
    return acc;
}

// part: sums over the inputs that share an activation scale, before multiplying by it; acc: the sums after.
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

// a + b of the sums of a row. Rows that pad a tile hold anything, so it may wrap around.
FORESAY_INLINE int32_t add_sums(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<std::uint32_t>(a) + static_cast<std::uint32_t>(b));
}

// The exact sum of a group's products: (weight code - zero point) * activation code. `at` selects group and row.
FORESAY_INLINE I sum_products(const PanelQ4_0&, const Group& group, const ActivationTile& x, int64_t at) {
    return dot_group(set_int(x.minus8[at]), group, x.q + 32 * at);
}
FORESAY_INLINE I sum_products(const PanelMXFP4&, const Group& group, const ActivationTile& x, int64_t at) {
    const int32_t minus8 = x.minus8[at];
    return dot_group(set_int(add_sums(minus8, minus8 / 2)), group, x.q + 32 * at);  // minus 12 times the sum
}
FORESAY_INLINE I sum_products(const PanelQ2OfQ4_0&, const Group& group, const ActivationTile& x, int64_t at) {
    return dot_group(set_int(x.minus8[at] / 4), group, x.q + 32 * at);
}
FORESAY_INLINE I sum_products(const PanelQ3OfQ4_0&, const Group& group, const ActivationTile& x, int64_t at) {
    return dot_group(set_int(x.minus8[at] / 2), group, x.q + 32 * at);
}
FORESAY_INLINE I sum_products(const PanelQ5OfQ8_0&, const Group& group, const ActivationTile& x, int64_t at) {
    return dot_group(set_int(add_sums(x.minus8[at], x.minus8[at])), group, x.q + 32 * at);
}
FORESAY_INLINE I sum_wide(const Group& group, const ActivationTile& x, int64_t at) {
    I sum = set_int(wide_seed(x.minus128[at]));
    for (int g = 0; g < 8; ++g) sum = dot_wide(sum, group.code[g], x.q + 32 * at + 4 * g);
    return sum;
}

FORESAY_INLINE I sum_products(const PanelQ8_0&, const Group& group, const ActivationTile& x, int64_t at) {
    return sum_wide(group, x, at);
}
FORESAY_INLINE I sum_products(const PanelIQ4_NL&, const Group& group, const ActivationTile& x, int64_t at) {
    return sum_wide(group, x, at);
}

// q4_0, q8_0 and mxfp4, and those in narrower panels: a scale for each output and group of 32 inputs.
template <int M, class Block>
FORESAY_INLINE void scaled_blocks(const Block* block, int blocks, const ActivationTile& x, F (&acc)[M]) {
    for (int first = 0; first < blocks; first += 2) {
        F part[M];
        clear<M>(part);
        const int end = first + 2 < blocks ? first + 2 : blocks;
        for (int b = first; b < end; ++b, ++block) {
            prefetch_ahead<M, sizeof(Block)>(block);
            for (int h = 0; h < 2; ++h) {
                const Group group = codes_of(*block, h);
                const F d = scale_of(*block, h);
                const int64_t at = static_cast<int64_t>(2 * b + h) * M;
#pragma GCC unroll 16
                for (int m = 0; m < M; ++m) {
                    part[m] = fma(to_float(sum_products(*block, group, x, at + m)), d, part[m]);
                }
            }
        }
        add_parts<M>(part, x.scale + static_cast<int64_t>(first / 2) * M, acc);
    }
}

// q4_k and q5_k: a scale and a minimum for each output and group of 32 inputs.
template <int M, class Block>
FORESAY_INLINE void k_blocks(const Block* block, int blocks, const ActivationTile& x, F (&acc)[M]) {
    for (int b = 0; b < blocks; ++b, ++block) {
        const F d = load_half(block->d), dmin = load_half(block->dmin);
        prefetch_ahead<M, offsetof(Block, codes)>(block);
        for (int half = 0; half < 2; ++half) {
            F part[M];
            clear<M>(part);
            for (int pair = 2 * half; pair < 2 * half + 2; ++pair) {
                const PairScales& scales = block->scales[pair];
                const I high = load_u8(scales.high);
                for (int h = 0; h < 2; ++h) {
                    const auto& codes = block->codes[2 * pair + h];
                    prefetch_ahead<M, sizeof codes>(&codes);
                    const Group group = unpack(codes);
                    const I low = load_u8(scales.low[h]);
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

// q6_k: a scale for each output and 16 inputs. kShare: by what 32, the zero point of Codes6, is to be divided.
template <int M, int kShare, class Block>
FORESAY_INLINE void q6_k_blocks(const Block* block, int blocks, const ActivationTile& x, F (&acc)[M]) {
    for (int b = 0; b < blocks; ++b, ++block) {
        const F d = load_half(block->d);
        prefetch_ahead<M, offsetof(Block, codes)>(block);
        for (int half = 0; half < 2; ++half) {
            F part[M];
            clear<M>(part);
            for (int g = 4 * half; g < 4 * half + 4; ++g) {
                const auto& codes = block->codes[g];
                prefetch_ahead<M, sizeof codes>(&codes);
                const Group group = unpack(codes);
                const F scale0 = mul(d, to_float(load_i8(block->scales[2 * g])));
                const F scale1 = mul(d, to_float(load_i8(block->scales[2 * g + 1])));
                const int64_t at = static_cast<int64_t>(8 * b + g) * M;
#pragma GCC unroll 16
                for (int m = 0; m < M; ++m) {
                    I first = set_int(x.minus32[2 * (at + m)] / kShare);
                    I second = set_int(x.minus32[2 * (at + m) + 1] / kShare);
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

// Float weights. Even and odd inputs have separate sums, so that the additions of one row overlap. `load_values` loads
// 16 numbers.
template <int M, class Block, class Load>
FORESAY_INLINE void floats(const Block* block, int inputs, const ActivationTile& x, F (&acc)[M], Load load_values) {
    F odd[M];
    clear<M>(odd);
    const float* v = x.values;
    int k = 0;
    for (; k + 2 <= inputs; k += 2, block += 2, v += 2 * M) {
        prefetch_ahead<M, 2 * sizeof(Block)>(block);
        const F w0 = load_values(block[0].values), w1 = load_values(block[1].values);
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
            acc[m] = fma(w0, set(v[m]), acc[m]);
            odd[m] = fma(w1, set(v[M + m]), odd[m]);
        }
    }
    if (k < inputs) {
        const F w = load_values(block->values);
        for (int m = 0; m < M; ++m) acc[m] = fma(w, set(v[m]), acc[m]);
    }
    for (int m = 0; m < M; ++m) acc[m] = add(acc[m], odd[m]);
}

template <class Block>
FORESAY_INLINE const Block* as(const uint8_t* p) {
    return reinterpret_cast<const Block*>(p);
}

// Packed panels: one loop for all forms and widths of codes, chosen again for each group, which costs a predicted jump.

// What a group's scales are. A code's value is scale * number + minimum; the forms of a class share a loop.
enum class ScaleClass { whole, halves, table_halves };

constexpr ScaleClass class_of(ScaleForm form) {
    if (form == ScaleForm::k_minimum) return ScaleClass::halves;
    const bool table = form == ScaleForm::k_table || form == ScaleForm::f32_table;
    return table ? ScaleClass::table_halves : ScaleClass::whole;
}

struct PackedScales {
    F scale[2], minimum[2];  // of the whole group, or of its halves
};

// Group `index` of those under the head.
template <ScaleClass C>
FORESAY_INLINE void load_scales(ScaleForm form, const uint8_t* head, int index, PackedScales& s) {
    const F zero = set(0.0f);
    const auto* f = reinterpret_cast<const float*>(head);
    if constexpr (C == ScaleClass::halves) {
        const F d = load_half(head), dmin = load_half(head + 32);
        for (int h = 0; h < 2; ++h) {
            const I both = load_u8(head + 64 + 16 * (2 * index + h));
            s.scale[h] = mul(d, to_float(and_int(both, 15)));
            s.minimum[h] = fnma(dmin, to_float(shift_right<4>(both)), zero);
        }
    } else if constexpr (C == ScaleClass::table_halves) {
        if (form == ScaleForm::f32_table) {
            s.scale[0] = load(f), s.scale[1] = load(f + 16);
            return;
        }
        const auto* scales = reinterpret_cast<const int8_t*>(head + 64 + 32 * index);
        const F d = load(f);
        s.scale[0] = mul(d, to_float(load_i8(scales)));
        s.scale[1] = mul(d, to_float(load_i8(scales + 16)));
    } else if (form == ScaleForm::f16_minimum) {
        s.scale[0] = load_half(head), s.minimum[0] = load_half(head + 32);
    } else if (form == ScaleForm::f16_zero) {
        s.scale[0] = load_half(head), s.minimum[0] = fnma(s.scale[0], load_half(head + 32), zero);
    } else if (form == ScaleForm::f32_minimum) {
        s.scale[0] = load(f), s.minimum[0] = load(f + 16);
    } else {
        s.scale[0] = load(f), s.minimum[0] = fnma(s.scale[0], load(f + 16), zero);
    }
}

// Tables have 3 or 4 bits, and codes in halves 2: those come first.
template <ScaleClass C>
FORESAY_INLINE Group unpack_packed(int bits, const uint8_t* p) {
    if (bits == 4) return unpack(*as<Codes4>(p));
    if constexpr (C == ScaleClass::table_halves) {
        return unpack(*as<Codes3>(p));
    } else {
        switch (bits) {
            case 2:
                return unpack(*as<Codes2>(p));
            case 3:
                return unpack(*as<Codes3>(p));
            case 5:
                return unpack(*as<Codes5>(p));
            case 6:
                return unpack(*as<Codes6>(p));
            default:
                return unpack(*as<Codes8>(p));
        }
    }
}

// Of sums of an ActivationTile, whose padding rows hold anything: their results are dropped, but must not overflow.
FORESAY_INLINE int32_t product(uint32_t factor, int32_t sum) {
    return static_cast<int32_t>(factor * static_cast<uint32_t>(sum));
}
FORESAY_INLINE int32_t difference(int32_t a, int32_t b) {
    return static_cast<int32_t>(static_cast<uint32_t>(a) - static_cast<uint32_t>(b));
}

// Adds the products of a group with rows at x.q + 32 * at. `wide`: codes may be above 63.
template <int M, ScaleClass C, class Dot>
FORESAY_INLINE void add_group(bool wide, const Group& group, const PackedScales& s, const ActivationTile& x, int64_t at,
                              F (&part)[M], Dot dot_of) {
    if constexpr (C == ScaleClass::whole) {
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
            // dot_wide() takes 128 from each code, or the seed does: here neither is wanted.
            const int32_t minus128 = x.minus128[at + m];
            I sum = set_int(wide ? difference(wide_seed(minus128), minus128) : 0);
            for (int j = 0; j < 8; ++j) sum = dot_of(sum, group.code[j], x.q + 32 * (at + m) + 4 * j);
            part[m] = fma(to_float(sum), s.scale[0], part[m]);
            part[m] = fma(s.minimum[0], set(x.sum[at + m]), part[m]);
        }
    } else {
        constexpr bool kTable = C == ScaleClass::table_halves;
        constexpr float kSum = -1.0f / 32.0f;
#pragma GCC unroll 16
        for (int m = 0; m < M; ++m) {
            const int32_t* minus32 = x.minus32 + 2 * (at + m);
            const int8_t* q = x.q + 32 * (at + m);
            I first = set_int(kTable ? wide_seed(product(4, minus32[0])) : 0);
            I second = set_int(kTable ? wide_seed(product(4, minus32[1])) : 0);
            for (int j = 0; j < 4; ++j) first = dot_of(first, group.code[j], q + 4 * j);
            for (int j = 4; j < 8; ++j) second = dot_of(second, group.code[j], q + 4 * j);
            part[m] = fma(to_float(first), s.scale[0], part[m]);
            part[m] = fma(to_float(second), s.scale[1], part[m]);
            if constexpr (!kTable) {
                part[m] = fma(s.minimum[0], set(kSum * static_cast<float>(minus32[0])), part[m]);
                part[m] = fma(s.minimum[1], set(kSum * static_cast<float>(minus32[1])), part[m]);
            }
        }
    }
}

// What head comes before the groups still to come, and which kind each has.
struct PackedWalk {
    const PackedPanels& format;
    const uint8_t* at;
    const uint8_t* head = nullptr;
    int index = 0;  // of the group under its head
    int k = 0;      // of the group in its period
    int bits = 0;
    bool fresh = false;  // the head is new

    // `at` is the group's codes then; the caller goes beyond them.
    static __attribute__((always_inline)) void step(PackedWalk& w) {
        const uint8_t kind = w.format.kinds[w.k];
        if (++w.k == w.format.period) w.k = 0;
        w.fresh = (kind & kHead) != 0;
        ++w.index;
        if (w.fresh) {
            w.head = w.at;
            w.at += kPanelOutputs * head_bytes(w.format.form);
            w.index = 0;
        }
        w.bits = kind & ~kHead;
    }
};

template <int M>
FORESAY_INLINE void prefetch_codes(const uint8_t* p, int bits) {
    for (int i = 0; i < bits; ++i) {
        prefetch_l2(p + kIntoL2 + 64 * i);
        if constexpr (M <= kFewRows) prefetch(p + kIntoL1 + 64 * i);
    }
}

template <int M, ScaleClass C>
__attribute__((noinline)) void packed_groups(const PackedPanels& format, const uint8_t* p, int groups,
                                             const ActivationTile& x, F (&sums)[M]) {
    const ScaleForm form = format.form;
    PackedWalk walk{format, p};
    PackedScales s{};
    F acc[M];
    clear<M>(acc);
    for (int first = 0; first < groups; first += kScaleInputs / kGroupInputs) {
        F part[M];
        clear<M>(part);
        const int end = first + 4 < groups ? first + 4 : groups;
        for (int g = first; g < end; ++g) {
            PackedWalk::step(walk);
            if (C != ScaleClass::whole || walk.fresh) load_scales<C>(form, walk.head, walk.index, s);
            prefetch_codes<M>(walk.at, walk.bits);
            Group group = unpack_packed<C>(walk.bits, walk.at);
            if constexpr (C == ScaleClass::table_halves) {
                for (B& code : group.code) code = look_up(code, format.table);
            }
            walk.at += kVectorBytes * walk.bits;
            const bool wide = C == ScaleClass::table_halves || walk.bits == 8;
            const int64_t at = static_cast<int64_t>(g) * M;
#if defined(FORESAY_ISA_AVX2)
            if (!wide) {
                add_group<M, C>(false, group, s, x, at, part,
                                [](I sum, B codes, const int8_t* q) { return dot(sum, codes, q); });
                continue;
            }
#endif
            add_group<M, C>(wide, group, s, x, at, part,
                            [](I sum, B codes, const int8_t* q) { return dot_wide(sum, codes, q); });
        }
        add_parts<M>(part, x.scale + static_cast<int64_t>(first / 4) * M, acc);
    }
    for (int m = 0; m < M; ++m) sums[m] = acc[m];
}

// Floats of eight bits, multiplied by their scales first: the sums are those of float32 weights.
template <int M>
__attribute__((noinline)) void packed_floats(const PackedPanels& format, const uint8_t* p, int groups,
                                             const ActivationTile& x, F (&sums)[M]) {
    PackedWalk walk{format, p};
    F even[M], odd[M], scale = set(0.0f);
    clear<M>(even);
    clear<M>(odd);
    const float* v = x.values;
    for (int g = 0; g < groups; ++g) {
        PackedWalk::step(walk);
        if (walk.fresh) scale = load(reinterpret_cast<const float*>(walk.head));
        prefetch_codes<M>(walk.at, 8);
        for (int i = 0; i < kGroupInputs; i += 2, v += 2 * M) {
            F w0, w1;
            load_e4m3(walk.at + kPanelOutputs * i, w0, w1);
            w0 = mul(w0, scale);
            w1 = mul(w1, scale);
#pragma GCC unroll 16
            for (int m = 0; m < M; ++m) {
                even[m] = fma(w0, set(v[m]), even[m]);
                odd[m] = fma(w1, set(v[M + m]), odd[m]);
            }
        }
        walk.at += kVectorBytes * 8;
    }
    for (int m = 0; m < M; ++m) sums[m] = add(even[m], odd[m]);
}

// What becomes of the sums of a panel. The last two end a gated MLP: y holds the gate's product and becomes
// activation(y) times the sum.
enum class Finish { set, add, silu_times, gelu_times };

struct Output {
    float* y;
    int64_t stride;
    Finish finish;
};

// Not inlined: the activations would be unrolled once more for each type of panel.
template <int M>
__attribute__((noinline)) void finish_gated(const F* sums, int rows, float* y, int64_t stride, bool gelu) {
    for (int m = 0; m < M; ++m) {
        if (m >= rows) break;
        const F gate = load(y + m * stride);
        store(y + m * stride, mul(gelu ? gelu_tanh(gate) : silu(gate), sums[m]));
    }
}

template <int M>
FORESAY_INLINE void finish(const F (&sums)[M], int rows, const Output& out, int panel) {
    float* y = out.y + kPanelOutputs * panel;
    if (out.finish > Finish::add) {
        F copy[M];  // only this branch needs the sums in memory
        for (int m = 0; m < M; ++m) copy[m] = sums[m];
        return finish_gated<M>(copy, rows, y, out.stride, out.finish == Finish::gelu_times);
    }
    for (int m = 0; m < M; ++m) {
        if (m >= rows) break;
        float* at = y + m * out.stride;
        store(at, out.finish == Finish::add ? add(load(at), sums[m]) : sums[m]);
    }
}

template <int M>
__attribute__((noinline)) void packed_panel(const PackedPanels& format, const uint8_t* p, int groups,
                                            const ActivationTile& x, F (&sums)[M]) {
    if (format.form == ScaleForm::e4m3) return packed_floats<M>(format, p, groups, x, sums);
    switch (class_of(format.form)) {
        case ScaleClass::whole:
            return packed_groups<M, ScaleClass::whole>(format, p, groups, x, sums);
        case ScaleClass::halves:
            return packed_groups<M, ScaleClass::halves>(format, p, groups, x, sums);
        case ScaleClass::table_halves:
            return packed_groups<M, ScaleClass::table_halves>(format, p, groups, x, sums);
    }
}

// A loop of its own: a panel of 512 inputs takes 600 instructions, of which a call for each panel that passed the sums
// through memory was 2 %. Not inlined: linear() calls it once and gated() twice for each of many widths.
template <int M>
__attribute__((noinline)) void panels(const PanelRange& w, const ActivationTile& x, const Output& out) {
    const int blocks = w.blocks;
    for (int index = w.begin; index < w.end; ++index) {
        const uint8_t* p = w.data + index * w.panel_bytes;
        F acc[M];
        clear<M>(acc);
        switch (w.type) {
            case PanelType::q4_0:
                scaled_blocks<M>(as<PanelQ4_0>(p), blocks, x, acc);
                break;
            case PanelType::q8_0:
                scaled_blocks<M>(as<PanelQ8_0>(p), blocks, x, acc);
                break;
            case PanelType::q4_k:
                k_blocks<M>(as<PanelQ4_K>(p), blocks, x, acc);
                break;
            case PanelType::q5_k:
                k_blocks<M>(as<PanelQ5_K>(p), blocks, x, acc);
                break;
            case PanelType::q6_k:
                q6_k_blocks<M, 1>(as<PanelQ6_K>(p), blocks, x, acc);
                break;
            case PanelType::q3_of_q6_k:
                q6_k_blocks<M, 8>(as<PanelQ3OfQ6_K>(p), blocks, x, acc);
                break;
            case PanelType::q2_of_q4_0:
                scaled_blocks<M>(as<PanelQ2OfQ4_0>(p), blocks, x, acc);
                break;
            case PanelType::q3_of_q4_0:
                scaled_blocks<M>(as<PanelQ3OfQ4_0>(p), blocks, x, acc);
                break;
            case PanelType::q5_of_q8_0:
                scaled_blocks<M>(as<PanelQ5OfQ8_0>(p), blocks, x, acc);
                break;
            case PanelType::iq4_nl_of_q8_0:
                scaled_blocks<M>(as<PanelIQ4_NL>(p), blocks, x, acc);
                break;
            case PanelType::mxfp4:
                scaled_blocks<M>(as<PanelMXFP4>(p), blocks, x, acc);
                break;
            case PanelType::f32:
                floats<M>(as<PanelF32>(p), blocks, x, acc, [](const float* v) { return load(v); });
                break;
            case PanelType::f16:
                floats<M>(as<PanelF16>(p), blocks, x, acc, [](const uint16_t* v) { return load_half(v); });
                break;
            case PanelType::bf16:
                floats<M>(as<PanelF16>(p), blocks, x, acc, [](const uint16_t* v) { return load_bf16(v); });
                break;
            case PanelType::packed: {
                F sums[M];  // only this case needs them in memory
                packed_panel<M>(w.packed, p, blocks, x, sums);
                for (int m = 0; m < M; ++m) acc[m] = sums[m];
                break;
            }
        }
        finish<M>(acc, x.rows, out, index);
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

void linear(const PanelRange& w, const ActivationTile& x, float* y, int64_t y_stride, Store mode) {
    const Output out{y, y_stride, mode == Store::add ? Finish::add : Finish::set};
    with_stride(x.stride, [&]<int M>() { panels<M>(w, x, out); });
}

void gated(const PanelRange& gate, const PanelRange& up, const ActivationTile& x, float* y, int64_t y_stride,
           bool gelu) {
    const Output gates{y, y_stride, Finish::set}, out{y, y_stride, gelu ? Finish::gelu_times : Finish::silu_times};
    with_stride(x.stride, [&]<int M>() {
        panels<M>(gate, x, gates);
        panels<M>(up, x, out);
    });
}

}  // namespace foresay::kernels::cpu::FORESAY_ISA
