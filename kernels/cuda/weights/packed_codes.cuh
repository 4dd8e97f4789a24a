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
// Four floats of eight bits, likewise: shifted into a float16 they are 2^-8 times the number.
__device__ inline void e4m3_pairs(std::uint32_t word, std::uint32_t& first, std::uint32_t& second) {
    first = (word << 7 & 0x3f803f80u) | (word << 8 & 0x80008000u);
    const std::uint32_t upper = (word >> 1 & 0x3f803f80u) | (word & 0x80008000u);
    second = as_bits(__hmul2(as_halves(upper), __float2half2_rn(16.0f)));
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

// memory.one(at), .two(at), .four(at): words of the block from byte `at` on.
template <CodeKind kKind, class Memory>
__device__ __forceinline__ void load_pairs(const Memory& memory, int t, int g, int lane,
                                           [[maybe_unused]] const uint4& table, std::uint32_t (&p)[2][4]) {
    constexpr int kBits = code_bits(kKind);
    if constexpr (kBits == 8) {
        const uint4 words = memory.four((t * 2 + g) * 512 + lane * 16);  // (h, s)
        const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
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
        const uint2 words = memory.two(t * 512 + lane * 16 + g * 8);  // h; selectors of s in a half each
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const std::uint32_t word = i / 2 == 0 ? words.x : words.y;
            byte_pairs(look_up16(i % 2 == 0 ? word & 0xffffu : word >> 16, table), p[i / 2][2 * (i % 2)],
                       p[i / 2][2 * (i % 2) + 1]);
        }
    } else if constexpr (kKind == CodeKind::table3) {
        const std::uint32_t lower = memory.one(t * 256 + lane * 8 + g * 4);
        const std::uint32_t upper = memory.one(512 + lane * 8 + t * 4) >> (16 * g);
#pragma unroll
        for (int i = 0; i < 4; ++i) {  // (h, s)
            const std::uint32_t selectors =
                (lower >> (16 * (i / 2) + 2 * (i % 2)) & 0x3333u) | ((upper >> i & 0x1111u) << 2);
            byte_pairs(look_up8(selectors, table), p[i / 2][2 * (i % 2)], p[i / 2][2 * (i % 2) + 1]);
        }
    } else {
        constexpr bool kNibbles = kBits >= 4;
        constexpr int kPlane = kNibbles ? 1024 : 0;  // where the planes of upper bits begin
        if constexpr (kNibbles) {
            const uint2 words = memory.two(t * 512 + lane * 16 + g * 8);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const std::uint32_t word = h == 0 ? words.x : words.y;
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
        if constexpr (kBits == 2 || kBits == 3 || kBits == 6) {
            const std::uint32_t word = memory.one(kPlane + t * 256 + lane * 8 + g * 4);
#pragma unroll
            for (int slot = 0; slot < 4; ++slot) {  // (h, s)
                const int shift = 2 * (slot % 2) + 8 * (slot / 2) - 4;
                const std::uint32_t bits = shift < 0 ? word << -shift : word >> shift;
                p[slot / 2][2 * (slot % 2)] |= bits & 0x00300030u;
                p[slot / 2][2 * (slot % 2) + 1] |= bits & 0x03000300u;
            }
        }
        // One bit, above these: fifth_place().
        if constexpr (kBits == 3 || kBits == 5) {
            constexpr int kTo = kBits == 3 ? 6 : 4;
            constexpr std::uint32_t kFirst = 0x00010001u << kTo, kSecond = kFirst << 4;
            const std::uint32_t word = memory.one(kPlane + (kBits == 3 ? 512 : 0) + lane * 8 + t * 4);
#pragma unroll
            for (int of_group = 0; of_group < 4; ++of_group) {
                const int slot = 4 * g + of_group, shift = (slot < 4 ? slot : slot + 4) - kTo;
                const std::uint32_t bits = shift < 0 ? word << -shift : word >> shift;
                p[of_group / 2][2 * (of_group % 2)] |= bits & kFirst;
                p[of_group / 2][2 * (of_group % 2) + 1] |= bits & kSecond;
            }
        }
    }
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
template <class Memory>
__device__ __forceinline__ void load_halves(const Memory& memory, PanelScales scales, int at, int t, int lane,
                                            float (&s)[2][4], float (&m)[2][4]) {
    const int row = lane / 4;
    if (scales == PanelScales::f32_16) {
#pragma unroll
        for (int u = 0; u < 4; ++u) {
            const uint2 both = memory.two(at + u * 128 + row * 16 + t * 8);
            s[0][u] = __uint_as_float(both.x);
            s[1][u] = __uint_as_float(both.y);
            m[0][u] = m[1][u] = 0.0f;
        }
        return;
    }
    const uint2 of_rows = memory.two(at + row * 16 + t * 8), bytes = memory.two(at + 128 + row * 16 + t * 8);
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const std::uint32_t d = h == 0 ? of_rows.x : of_rows.y, four = h == 0 ? bytes.x : bytes.y;
        float code[4], minimum[4];
        if (scales == PanelScales::k_pair) {
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

// The same of a group of 32 inputs, for the lane's four rows [2 t + h]. `at`: where the scales of the group begin.
template <class Memory>
__device__ __forceinline__ void load_group_scales(const Memory& memory, PanelScales scales, int at, int lane,
                                                  float (&s)[4], float (&m)[4]) {
    const int row = lane / 4;
    if (scales == PanelScales::f16) {
        const uint2 words = memory.two(at + row * 8);
        const float2 low = as_floats(words.x), high = as_floats(words.y);
        s[0] = low.x, s[1] = low.y, s[2] = high.x, s[3] = high.y;
        m[0] = m[1] = m[2] = m[3] = 0.0f;
        return;
    }
    if (scales == PanelScales::f32_pair) {
        const uint4 low = memory.four(at + row * 32), high = memory.four(at + row * 32 + 16);
        s[0] = __uint_as_float(low.x), m[0] = __uint_as_float(low.y);
        s[1] = __uint_as_float(low.z), m[1] = __uint_as_float(low.w);
        s[2] = __uint_as_float(high.x), m[2] = __uint_as_float(high.y);
        s[3] = __uint_as_float(high.z), m[3] = __uint_as_float(high.w);
        return;
    }
    const uint4 words = memory.four(at + row * 16);
    const std::uint32_t word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        if (scales == PanelScales::f16_pair) {
            const float2 both = as_floats(word[i]);
            s[i] = both.x, m[i] = both.y;
        } else {
            s[i] = __uint_as_float(word[i]), m[i] = 0.0f;
        }
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
