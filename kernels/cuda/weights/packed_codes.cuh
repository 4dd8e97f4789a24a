// kernels/cuda/weights/packed_codes.cuh: the codes of packed panels (packed_format.h) as operand A of mma.m16n8k16.
//
// load_pairs() gives a lane the 16 codes of a tile t and a group g of 32 inputs: p[h] holds rows 16 t + 8 h + lane / 4,
// pairs (c, c + 1) = (0, 1) and (2, 3) of step 0, then those of step 1, as pairs of float16. These are the codes times
// kCodeUnit; pairs c = 2, 3 are 16 times as large as that (ActivationForm::quarters_lowered). Tables give their numbers
// plus 128, e4m3 its number.
// Exact: all of it is bits moved into the mantissa of a subnormal float16, or products with a power of two.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/device/half_pairs.cuh"
#include "kernels/cuda/weights/packed_format.h"

namespace foresay::kernels::cuda {

// What a code times this is: a number.
template <CodeKind kKind>
inline constexpr float kCodeUnit = kKind == CodeKind::e4m3                    ? 256.0f
                                   : code_bits(kKind) < 4 && !is_table(kKind) ? 1048576.0f
                                                                              : 16777216.0f;

// Four bytes c = 0, 2, 1, 3, as two pairs. The second one is 16 times as large: (1024 + byte) 2^-20 - 2^-10.
__device__ inline void byte_pairs(std::uint32_t word, std::uint32_t& first, std::uint32_t& second) {
    first = word & 0x00ff00ffu;
    const std::uint32_t magic = __byte_perm(word, 0x64646464u, 0x4341u);
    second = as_bits(__hfma2(as_halves(magic), as_halves(0x00100010u), as_halves(0x94009400u)));
}
// Four floats of eight bits, likewise, 2^-8 times the number: by the instruction that GPUs have since 8.9, elsewhere by
// shifting their bits to the places of a float16's.
__device__ inline void e4m3_pairs(std::uint32_t word, std::uint32_t& first, std::uint32_t& second) {
#if defined(__CUDACC__) && __CUDA_ARCH__ >= 890
    std::uint32_t low, high;
    asm("{\n"
        ".reg .b16 first, second;\n"
        "mov.b32 {first, second}, %2;\n"
        "cvt.rn.f16x2.e4m3x2 %0, first;\n"
        "cvt.rn.f16x2.e4m3x2 %1, second;\n"
        "}\n"
        : "=r"(low), "=r"(high)
        : "r"(__byte_perm(word, 0, 0x3120u)));
    first = as_bits(__hmul2(as_halves(low), __float2half2_rn(0.00390625f)));
    second = as_bits(__hmul2(as_halves(high), __float2half2_rn(0.0625f)));
#else
    first = (word << 7 & 0x3f803f80u) | (word << 8 & 0x80008000u);
    const std::uint32_t upper = (word >> 1 & 0x3f803f80u) | (word & 0x80008000u);
    second = as_bits(__hmul2(as_halves(upper), __float2half2_rn(16.0f)));
#endif
}
// Four bytes of a table by the selectors in the lower 16 bits. The upper eight numbers count only with four-bit codes.
__device__ inline std::uint32_t look_up8(std::uint32_t selectors, const uint4& table) {
    return __byte_perm(table.x, table.y, selectors);
}
__device__ inline std::uint32_t look_up16(std::uint32_t selectors, const uint4& table) {
    const std::uint32_t lower = selectors & 0x7777u;
    const std::uint32_t which = (selectors & 0x8888u) >> 1 | 0x3210u;
    return __byte_perm(__byte_perm(table.x, table.y, lower), __byte_perm(table.z, table.w, lower), which);
}

// The words that the codes of a tile and a group lie in; those that a kind has none of stay unset.
struct CodeWords {
    uint4 bytes;            // of 8 bits: (h, s)
    uint2 nibbles;          // of 4 bits and more, and of table4: h
    std::uint32_t pairs;    // two bits of each code
    std::uint32_t singles;  // one bit of each code; of both groups
};
constexpr bool has_nibbles(CodeKind kind) { return code_bits(kind) >= 4 && code_bits(kind) < 8; }
constexpr bool has_pairs(CodeKind kind) { return code_bits(kind) == 2 || code_bits(kind) == 3 || code_bits(kind) == 6; }
constexpr bool has_singles(CodeKind kind) { return code_bits(kind) == 3 || code_bits(kind) == 5; }
// Where planes of upper bits begin: those of pairs, and those of single bits.
constexpr int pairs_at(CodeKind kind) { return has_nibbles(kind) ? 1024 : 0; }
constexpr int singles_at(CodeKind kind) { return has_nibbles(kind) ? 1024 : 512; }

// memory.one(at), .two(at), .four(at): words of the block from byte `at` on.
template <CodeKind kKind, class Memory>
__device__ __forceinline__ CodeWords load_words(const Memory& memory, int t, int g, int lane) {
    CodeWords w = {};
    if constexpr (code_bits(kKind) == 8) w.bytes = memory.four((t * 2 + g) * 512 + lane * 16);
    if constexpr (has_nibbles(kKind)) w.nibbles = memory.two(t * 512 + lane * 16 + g * 8);
    if constexpr (has_pairs(kKind)) w.pairs = memory.one(pairs_at(kKind) + t * 256 + lane * 8 + g * 4);
    if constexpr (has_singles(kKind)) w.singles = memory.one(singles_at(kKind) + lane * 8 + t * 4);
    return w;
}
// Those of a whole block, [t][g], in the widest loads there are.
template <CodeKind kKind, class Memory>
__device__ __forceinline__ void load_block_words(const Memory& memory, int lane, CodeWords (&w)[2][2]) {
    [[maybe_unused]] uint2 singles = {};
    if constexpr (has_singles(kKind)) singles = memory.two(singles_at(kKind) + lane * 8);
#pragma unroll
    for (int t = 0; t < 2; ++t) {
        [[maybe_unused]] uint4 nibbles = {};
        [[maybe_unused]] uint2 pairs = {};
        if constexpr (has_nibbles(kKind)) nibbles = memory.four(t * 512 + lane * 16);
        if constexpr (has_pairs(kKind)) pairs = memory.two(pairs_at(kKind) + t * 256 + lane * 8);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            w[t][g] = {};
            if constexpr (code_bits(kKind) == 8) w[t][g].bytes = memory.four((t * 2 + g) * 512 + lane * 16);
            w[t][g].nibbles = g == 0 ? uint2{nibbles.x, nibbles.y} : uint2{nibbles.z, nibbles.w};
            w[t][g].pairs = g == 0 ? pairs.x : pairs.y;
            w[t][g].singles = t == 0 ? singles.x : singles.y;
        }
    }
}

// The codes of tile t and group g as pairs (above).
template <CodeKind kKind>
__device__ __forceinline__ void unpack_words(const CodeWords& w, int g, [[maybe_unused]] const uint4& table,
                                             std::uint32_t (&p)[2][4]) {
    if constexpr (code_bits(kKind) == 8) {
        const std::uint32_t word[4] = {w.bytes.x, w.bytes.y, w.bytes.z, w.bytes.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            std::uint32_t &first = p[i / 2][2 * (i % 2)], &second = p[i / 2][2 * (i % 2) + 1];
            if constexpr (kKind == CodeKind::e4m3) {
                e4m3_pairs(word[i], first, second);
            } else {
                byte_pairs(word[i], first, second);
            }
        }
    } else if constexpr (kKind == CodeKind::table4) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // selectors of s in a half each
            const std::uint32_t word = i / 2 == 0 ? w.nibbles.x : w.nibbles.y;
            byte_pairs(look_up16(i % 2 == 0 ? word & 0xffffu : word >> 16, table), p[i / 2][2 * (i % 2)],
                       p[i / 2][2 * (i % 2) + 1]);
        }
    } else if constexpr (kKind == CodeKind::table3) {
        const std::uint32_t upper = w.singles >> (16 * g);
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // (h, s)
            const std::uint32_t selectors =
                (w.pairs >> (16 * (i / 2) + 2 * (i % 2)) & 0x3333u) | ((upper >> i & 0x1111u) << 2);
            byte_pairs(look_up8(selectors, table), p[i / 2][2 * (i % 2)], p[i / 2][2 * (i % 2) + 1]);
        }
    } else {
        if constexpr (has_nibbles(kKind)) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const std::uint32_t word = h == 0 ? w.nibbles.x : w.nibbles.y;
                p[h][0] = word & 0x000f000fu;
                p[h][1] = word & 0x00f000f0u;
                p[h][2] = word >> 8 & 0x000f000fu;
                p[h][3] = word >> 8 & 0x00f000f0u;
            }
        } else {
#pragma unroll
            for (int i = 0; i < 8; ++i) p[i / 4][i % 4] = 0;
        }
        // Two bits of each code, to bits 4 and 5 of a half (8 and 9 of the second pair): upper_place().
        if constexpr (has_pairs(kKind)) {
#pragma unroll
            for (int slot = 0; slot < 4; ++slot) {  // (h, s)
                const int shift = 2 * (slot % 2) + 8 * (slot / 2) - 4;
                const std::uint32_t bits = shift < 0 ? w.pairs << -shift : w.pairs >> shift;
                p[slot / 2][2 * (slot % 2)] |= bits & 0x00300030u;
                p[slot / 2][2 * (slot % 2) + 1] |= bits & 0x03000300u;
            }
        }
        // One bit, above these: fifth_place().
        if constexpr (has_singles(kKind)) {
            constexpr int kTo = code_bits(kKind) == 3 ? 6 : 4;
            constexpr std::uint32_t kFirst = 0x00010001u << kTo, kSecond = kFirst << 4;
#pragma unroll
            for (int of_group = 0; of_group < 4; ++of_group) {
                const int slot = 4 * g + of_group, shift = (slot < 4 ? slot : slot + 4) - kTo;
                const std::uint32_t bits = shift < 0 ? w.singles << -shift : w.singles >> shift;
                p[of_group / 2][2 * (of_group % 2)] |= bits & kFirst;
                p[of_group / 2][2 * (of_group % 2) + 1] |= bits & kSecond;
            }
        }
    }
}

template <CodeKind kKind, class Memory>
__device__ __forceinline__ void load_pairs(const Memory& memory, int t, int g, int lane, const uint4& table,
                                           std::uint32_t (&p)[2][4]) {
    unpack_words<kKind>(load_words<kKind>(memory, t, g, lane), g, table, p);
}

// Four bytes, signed if `kMiddle` is 128, as floats; by way of float16, because integers convert at a quarter of the
// rate.
template <int kMiddle>
__device__ __forceinline__ void bytes_as_floats(std::uint32_t bytes, float (&to)[4]) {
    if (kMiddle != 0) bytes ^= 0x80808080u;
    const __half2 middle = __float2half2_rn(1024.0f + static_cast<float>(kMiddle));
    const float2 low = __half22float2(__hsub2(as_halves(__byte_perm(bytes, 0x64646464u, 0x4140u)), middle));
    const float2 high = __half22float2(__hsub2(as_halves(__byte_perm(bytes, 0x64646464u, 0x4342u)), middle));
    to[0] = low.x, to[1] = low.y, to[2] = high.x, to[3] = high.y;
}

// Scales and minima of the lane's two rows h of tile t, for each 16 inputs of a block, [h][2 g + s]; without `factor`.
// `at`: where the scales begin. What has no minimum has m 0.
template <PanelScales kScales, class Memory>
__device__ __forceinline__ void load_halves_as(const Memory& memory, int at, int t, int lane, float (&s)[2][4],
                                               float (&m)[2][4]) {
    const int row = lane / 4;
    if constexpr (kScales == PanelScales::f32_16) {
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const uint2 both = memory.two(at + u * 128 + row * 16 + t * 8);
            s[0][u] = __uint_as_float(both.x);
            s[1][u] = __uint_as_float(both.y);
            m[0][u] = m[1][u] = 0.0f;
        }
    } else {
        const uint2 of_rows = memory.two(at + row * 16 + t * 8), bytes = memory.two(at + 128 + row * 16 + t * 8);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const std::uint32_t d = h == 0 ? of_rows.x : of_rows.y, four = h == 0 ? bytes.x : bytes.y;
            float code[4], minimum[4];
            if constexpr (kScales == PanelScales::k_pair) {
                const float2 both = as_floats(d);
                bytes_as_floats<0>(four & 0x0f0f0f0fu, code);
                bytes_as_floats<0>(four >> 4 & 0x0f0f0f0fu, minimum);
#pragma unroll
                for (int u = 0; u < 4; ++u) {
                    s[h][u] = both.x * code[u];
                    m[h][u] = -(both.y * minimum[u]);
                }
            } else {
                bytes_as_floats<128>(four, code);
#pragma unroll
                for (int u = 0; u < 4; ++u) {
                    s[h][u] = __uint_as_float(d) * code[u];
                    m[h][u] = 0.0f;
                }
            }
        }
    }
}
template <class Memory>
__device__ __forceinline__ void load_halves(const Memory& memory, PanelScales scales, int at, int t, int lane,
                                            float (&s)[2][4], float (&m)[2][4]) {
    if (scales == PanelScales::f32_16) {
        load_halves_as<PanelScales::f32_16>(memory, at, t, lane, s, m);
    } else if (scales == PanelScales::k_pair) {
        load_halves_as<PanelScales::k_pair>(memory, at, t, lane, s, m);
    } else {
        load_halves_as<PanelScales::k_table>(memory, at, t, lane, s, m);
    }
}

// The same of a group of 32 inputs, for the lane's four rows [2 t + h]. `at`: where the scales of the group begin.
template <PanelScales kScales, class Memory>
__device__ __forceinline__ void load_group_scales_as(const Memory& memory, int at, int lane, float (&s)[4],
                                                     float (&m)[4]) {
    const int row = lane / 4;
    if constexpr (kScales == PanelScales::f16) {
        const uint2 words = memory.two(at + row * 8);
        const float2 low = as_floats(words.x), high = as_floats(words.y);
        s[0] = low.x, s[1] = low.y, s[2] = high.x, s[3] = high.y;
        m[0] = m[1] = m[2] = m[3] = 0.0f;
    } else if constexpr (kScales == PanelScales::f32_pair) {
        const uint4 low = memory.four(at + row * 32), high = memory.four(at + row * 32 + 16);
        s[0] = __uint_as_float(low.x), m[0] = __uint_as_float(low.y);
        s[1] = __uint_as_float(low.z), m[1] = __uint_as_float(low.w);
        s[2] = __uint_as_float(high.x), m[2] = __uint_as_float(high.y);
        s[3] = __uint_as_float(high.z), m[3] = __uint_as_float(high.w);
    } else {
        const uint4 words = memory.four(at + row * 16);
        const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if constexpr (kScales == PanelScales::f16_pair) {
                const float2 both = as_floats(word[i]);
                s[i] = both.x, m[i] = both.y;
            } else {
                s[i] = __uint_as_float(word[i]), m[i] = 0.0f;
            }
        }
    }
}
template <class Memory>
__device__ __forceinline__ void load_group_scales(const Memory& memory, PanelScales scales, int at, int lane,
                                                  float (&s)[4], float (&m)[4]) {
    if (scales == PanelScales::f16) {
        load_group_scales_as<PanelScales::f16>(memory, at, lane, s, m);
    } else if (scales == PanelScales::f32_pair) {
        load_group_scales_as<PanelScales::f32_pair>(memory, at, lane, s, m);
    } else if (scales == PanelScales::f16_pair) {
        load_group_scales_as<PanelScales::f16_pair>(memory, at, lane, s, m);
    } else {
        load_group_scales_as<PanelScales::f32>(memory, at, lane, s, m);
    }
}
// Those of both groups of a block, or the ones that they share, of one of two forms. `apart`: bytes from one group's to
// the other's.
template <PanelScales kOne, PanelScales kOther, int kHeads, class Memory>
__device__ __forceinline__ void load_block_scales(const Memory& memory, PanelScales scales, int at, int apart, int lane,
                                                  float (&s)[kHeads][4], float (&m)[kHeads][4]) {
    if (kOne == kOther || scales == kOne) {
#pragma unroll
        for (int h = 0; h < kHeads; ++h) load_group_scales_as<kOne>(memory, at + h * apart, lane, s[h], m[h]);
    } else {
#pragma unroll
        for (int h = 0; h < kHeads; ++h) load_group_scales_as<kOther>(memory, at + h * apart, lane, s[h], m[h]);
    }
}

// The same for the lane's two rows h of tile t.
template <class Memory>
__device__ __forceinline__ void load_tile_scales(const Memory& memory, PanelScales scales, int at, int t, int lane,
                                                 float (&s)[2], float (&m)[2]) {
    const int slot = Place(16 * t + lane / 4, 0).row_slot();  // of h 0; that of h 1 is the next
    if (scales == PanelScales::f16) {
        const float2 both = as_floats(memory.one(at + slot * 2));
        s[0] = both.x, s[1] = both.y;
        m[0] = m[1] = 0.0f;
    } else if (scales == PanelScales::f32_pair) {
        const uint4 words = memory.four(at + slot * 8);
        s[0] = __uint_as_float(words.x), m[0] = __uint_as_float(words.y);
        s[1] = __uint_as_float(words.z), m[1] = __uint_as_float(words.w);
    } else {
        const uint2 words = memory.two(at + slot * 4);
        if (scales == PanelScales::f16_pair) {
            const float2 first = as_floats(words.x), second = as_floats(words.y);
            s[0] = first.x, m[0] = first.y;
            s[1] = second.x, m[1] = second.y;
        } else {
            s[0] = __uint_as_float(words.x), s[1] = __uint_as_float(words.y);
            m[0] = m[1] = 0.0f;
        }
    }
}

}  // namespace foresay::kernels::cuda
