// kernels/cuda/decode/multiply.cuh: a block of a panel times the activations of up to 16 rows, by tensor cores, for
// every quantisation type.
//
// Layout:   a warp holds the sums of 32 packed rows x 8 NT rows of the batch as accumulators of mma.m16n8k16:
//           sums[tile][nt][i], i as the instruction has it (row lane / 4 or + 8, column 2 (lane % 4) or + 1). Weights
//           are operand A, from a ring slot in shared memory; activations are operand B (ActivationOperand).
// Weights:  a block is laid out for this code (kernels/cuda/weights/panel_format.h): one 16-byte load yields the codes
//           of two operands, which masks alone unpack.
// Codes:    a masked code is the mantissa of a subnormal float16, code x 2^-24, exact; mma is as fast with subnormals.
//           The factor 2^24 is in the scales (kCodeScale).
// Scales:   products of 16 or 32 inputs are summed by mma in float32 and multiplied with their scale once (add_scaled).
//           The offset of the codes (8 for q4_0) or the minimum is taken off by one small mma: scales (minima) times
//           the sums of the activations.
// Law 1:    a column of an mma depends on that column of B alone. The order of the sums is that of the inputs, written
//           out here.
// Registers: Multiply::run is inlined and unrolled into multiply_slice() (gemv.cuh). Values are loaded just before
//           their use, and scopes end early on purpose; look for spills after each change (cuobjdump
//           --dump-resource-usage).
//
// Indices of a number in a block (panel_format.h): t tile of 16 rows, h half of a tile (row r or r + 8), sub 64 inputs
// of a K-quant's 256, g group of 32 inputs, s step of 16 (one mma), c one of four neighbouring inputs.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/decode/activations.cuh"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/half_pairs.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/weights/panel_format.h"

namespace foresay::kernels::cuda {

// Eight codes of a word as four pairs: p[0], p[1] are c = 0, 1 and 2, 3 of step 0, p[2], p[3] those of step 1. The
// pairs c = 2, 3 stay four bits higher than the others, that is, 16 times as large: their activations are 1/16
// (ActivationForm::quarters_lowered).
__device__ inline void unpack_nibbles(std::uint32_t word, std::uint32_t (&p)[4]) {
    const std::uint32_t upper = word >> 8;
    p[0] = word & 0x000f000fu;
    p[1] = word & 0x00f000f0u;
    p[2] = upper & 0x000f000fu;
    p[3] = upper & 0x00f000f0u;
}

// sums += d times the scales of rows r and r + 8. kOneRow: the batch has one row, so the second column of each pair is
// never read.
template <bool kOneRow>
__device__ inline void add_scaled(float (&sums)[4], const float (&d)[4], float scale0, float scale1) {
    sums[0] = fmaf(scale0, d[0], sums[0]);
    if (!kOneRow) sums[1] = fmaf(scale0, d[1], sums[1]);
    sums[2] = fmaf(scale1, d[2], sums[2]);
    if (!kOneRow) sums[3] = fmaf(scale1, d[3], sums[3]);
}

// Word i of four; registers have no index, so `i` must be a constant after unrolling.
__device__ inline std::uint32_t word_of(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// The product of a tile with a group of 32 inputs, from the codes of rows r (p[0]) and r + 8 (p[1]).
__device__ inline void multiply_group(float (&d)[4], const std::uint32_t (&p)[2][4], const uint4& x) {
    const float zero[4] = {};
    mma(d, p[0][0], p[1][0], p[0][1], p[1][1], x.x, x.y, zero);
    mma(d, p[0][2], p[1][2], p[0][3], p[1][3], x.z, x.w, d);
}

// run(address of the panel block in shared memory, activations, which block of the slice, sums, lane) adds the block's
// products to `sums`. All lanes of a warp call it.
template <QuantType E, int NT, bool kOneRow>
struct Multiply;

// Q4_0 and Q8_0: a float16 scale per 32 inputs.
template <QuantType E, int NT, bool kOneRow>
struct MultiplyScaled {
    static constexpr int kScales = block_format(E).scale_begin;

    static __device__ __forceinline__ void run(std::uint32_t block, const ActivationOperand<E, NT>& in, int j,
                                               float (&sums)[2][NT][4], int lane) {
        const uint4 scale = load_shared4(block + kScales + lane / 4 * 16);  // (tile, half): groups 0 and 1
        uint4 nibbles[2];
        if constexpr (E == QuantType::q4_0) {
            nibbles[0] = load_shared4(block + lane * 16);
            nibbles[1] = load_shared4(block + 512 + lane * 16);
        }
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            const std::uint32_t scale0 = word_of(scale, 2 * t), scale1 = word_of(scale, 2 * t + 1);
            const float2 s0 = as_floats(scale0), s1 = as_floats(scale1);
            // Takes the offset off: minus 8 (128) times the sums of the activations, times the scales.
#pragma unroll
            for (int nt = 0; nt < NT; ++nt) mma_k8(sums[t][nt], scale0, scale1, in.sum(j, nt, 0), sums[t][nt]);
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                std::uint32_t p[2][4];
                if constexpr (E == QuantType::q4_0) {
                    unpack_nibbles(word_of(nibbles[t], 2 * g), p[0]);
                    unpack_nibbles(word_of(nibbles[t], 2 * g + 1), p[1]);
                } else {
                    const uint4 code = load_shared4(block + (t * 2 + g) * 512 + lane * 16);
#pragma unroll
                    for (int i = 0; i < 4; ++i) {  // (half, step)
                        const std::uint32_t word = word_of(code, i);
                        p[i / 2][2 * (i % 2)] = word & 0x00ff00ffu;
                        p[i / 2][2 * (i % 2) + 1] = __byte_perm(word, 0, 0x4341);
                    }
                }
#pragma unroll
                for (int nt = 0; nt < NT; ++nt) {
                    float d[4];
                    multiply_group(d, p, in.operand(2 * j + g, nt));
                    add_scaled<kOneRow>(sums[t][nt], d, g == 0 ? s0.x : s0.y, g == 0 ? s1.x : s1.y);
                }
            }
        }
    }
};
template <int NT, bool kOneRow>
struct Multiply<QuantType::q4_0, NT, kOneRow> : MultiplyScaled<QuantType::q4_0, NT, kOneRow> {};
template <int NT, bool kOneRow>
struct Multiply<QuantType::q8_0, NT, kOneRow> : MultiplyScaled<QuantType::q8_0, NT, kOneRow> {};

// Twice the scale of exponent byte `byte` of a word. Exact: bytes are below 254.
__device__ inline float twice_scale(std::uint32_t exponents, int byte) {
    return __uint_as_float(((exponents >> (8 * byte) & 255u) + 1u) << 23);
}

// MXFP4: a power of two per 32 inputs.
template <int NT, bool kOneRow>
struct Multiply<QuantType::mxfp4, NT, kOneRow> {
    static __device__ __forceinline__ void run(std::uint32_t block, const ActivationOperand<QuantType::mxfp4, NT>& in,
                                               int j, float (&sums)[2][NT][4], int lane) {
        std::uint32_t exponents[2];  // t; bytes (h, g)
        load_shared2(exponents[0], exponents[1], block + 1024 + lane / 4 * 8);
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            const uint4 code = load_shared4(block + t * 512 + lane * 16);
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                std::uint32_t p[2][4];
                unpack_float_codes(word_of(code, 2 * g), p[0]);
                unpack_float_codes(word_of(code, 2 * g + 1), p[1]);
                const float s0 = twice_scale(exponents[t], g), s1 = twice_scale(exponents[t], 2 + g);
#pragma unroll
                for (int nt = 0; nt < NT; ++nt) {
                    float d[4];
                    multiply_group(d, p, in.operand(2 * j + g, nt));
                    add_scaled<kOneRow>(sums[t][nt], d, s0, s1);
                }
            }
        }
    }
};

// Of a row's 6-bit numbers (ScaleCodePlace), as pairs of codes: the scales of groups 2 sub and 2 sub + 1, and the
// minima of groups 2 q and 2 q + 1.
__device__ inline std::uint32_t k_scales(std::uint32_t nibbles, std::uint32_t upper, int sub) {
    if (sub >= 2) {
        nibbles >>= 8;
        upper >>= 6;
    }
    if (sub % 2 == 0) return (nibbles & 0x000f000fu) | (upper & 0x00300030u);
    const std::uint32_t higher = (nibbles & 0x00f000f0u) | (upper & 0x03000300u);
    return as_bits(__hmul2(as_halves(higher), __float2half2_rn(0.0625f)));
}
__device__ inline std::uint32_t k_minima(std::uint32_t nibbles, std::uint32_t upper, int q) {
    const ScaleCodePlace place(2 * q);
    return (nibbles >> place.nibble & 0x000f000fu) + (upper >> place.minimum_upper & 0x00030003u) * 16u;
}

// Q4_K, and Q5_K with its fifth bits: per row and block two float16 factors, d and dmin, and 6-bit scales and minima of
// 8 groups of 32 inputs. The minima of all groups go into one mma with the sums of the activations.
template <QuantType E, int NT, bool kOneRow>
struct MultiplyK {
    static constexpr bool kFifth = E == QuantType::q5_k;
    static constexpr int kScales = kFifth ? 5120 : 4096;

    static __device__ __forceinline__ void run(std::uint32_t block, const ActivationOperand<E, NT>& in, int j,
                                               float (&sums)[2][NT][4], int lane) {
        const std::uint32_t row = lane / 4;
        float d[4];                               // (tile, half), as codes of scales are scaled
        std::uint32_t nibbles[4], upper_bits[4];  // of scales
        // First the minima: - dmin * minimum * (sum of the group's activations), for all eight groups by one mma. The
        // sums are there as high and low parts, so the minima are operand A twice.
        {
            // Four rows of the lane (tile, half): d and dmin, then 12 bytes of 6-bit scales each, in three loads.
            const uint4 d_bits = load_shared4(block + kScales + row * 16);
            const uint4 w0 = load_shared4(block + kScales + 128 + row * 48);
            const uint4 w1 = load_shared4(block + kScales + 128 + row * 48 + 16);
            const uint4 w2 = load_shared4(block + kScales + 128 + row * 48 + 32);
            const std::uint32_t flat[12] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w, w2.x, w2.y, w2.z, w2.w};
            std::uint32_t minima[4];
            float d_minimum[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float2 both = as_floats(word_of(d_bits, i));
                d[i] = both.x * kCodeScale;
                d_minimum[i] = both.y * kMinimumScale;
                nibbles[i] = flat[3 * i];
                upper_bits[i] = flat[3 * i + 2];
                minima[i] = k_minima(flat[3 * i + 1], flat[3 * i + 2], lane % 4);
            }
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                const std::uint32_t m0 = minima[2 * t], m1 = minima[2 * t + 1];
#pragma unroll
                for (int nt = 0; nt < NT; ++nt) {
                    const float zero[4] = {};
                    float product[4];
                    mma(product, m0, m1, m0, m1, in.sum(j, nt, 0), in.sum(j, nt, 1), zero);
                    add_scaled<kOneRow>(sums[t][nt], product, d_minimum[2 * t], d_minimum[2 * t + 1]);
                }
            }
        }
#pragma unroll
        for (int sub = 0; sub < 4; ++sub) {
            // 64 inputs at a time: a plane of 4-bit codes, and the groups 2 sub and 2 sub + 1.
            const std::uint32_t plane = block + sub * 1024;
            const uint4 code[2] = {load_shared4(plane + lane * 16), load_shared4(plane + 512 + lane * 16)};
            std::uint32_t fifth[2] = {};
            if (kFifth) load_shared2(fifth[0], fifth[1], block + 4096 + sub * 256 + lane * 8);
            std::uint32_t scale[4];  // of both groups
#pragma unroll
            for (int i = 0; i < 4; ++i) scale[i] = k_scales(nibbles[i], upper_bits[i], sub);
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                const int group = 2 * sub + g;
#pragma unroll
                for (int t = 0; t < 2; ++t) {
                    std::uint32_t p[2][4];
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        unpack_nibbles(word_of(code[t], 2 * g + h), p[h]);
                        if (kFifth) {
#pragma unroll
                            for (int s = 0; s < 2; ++s) {
                                // The fifth bits of both halves of a word lie side by side; a shift brings them above
                                // their nibbles.
                                const int slot = 4 * g + 2 * h + s, shift = (slot < 4 ? slot : slot + 4) - 4;
                                const std::uint32_t bits = shift < 0 ? fifth[t] << -shift : fifth[t] >> shift;
                                p[h][2 * s] |= bits & 0x00100010u;
                                p[h][2 * s + 1] |= bits & 0x01000100u;
                            }
                        }
                    }
                    // Scale codes are subnormal float16 too; d carries the factor that makes them whole.
                    const float2 upper_scales = as_floats(scale[2 * t]), lower_scales = as_floats(scale[2 * t + 1]);
                    const float s0 = (g == 0 ? upper_scales.x : upper_scales.y) * d[2 * t];
                    const float s1 = (g == 0 ? lower_scales.x : lower_scales.y) * d[2 * t + 1];
#pragma unroll
                    for (int nt = 0; nt < NT; ++nt) {
                        float product[4];
                        multiply_group(product, p, in.operand(8 * j + group, nt));
                        add_scaled<kOneRow>(sums[t][nt], product, s0, s1);
                    }
                }
            }
        }
    }
};
template <int NT, bool kOneRow>
struct Multiply<QuantType::q4_k, NT, kOneRow> : MultiplyK<QuantType::q4_k, NT, kOneRow> {};
template <int NT, bool kOneRow>
struct Multiply<QuantType::q5_k, NT, kOneRow> : MultiplyK<QuantType::q5_k, NT, kOneRow> {};

// Two bytes of a word, signed, as a pair of float16: 0x6400 | u is 1024 + u.
__device__ inline std::uint32_t signed_pair(std::uint32_t word, std::uint32_t selector) {
    const std::uint32_t magic = __byte_perm(word ^ 0x80808080u, 0x64646464u, selector);  // 1024 + code + 128
    return as_bits(__hsub2(as_halves(magic), __float2half2_rn(1152.0f)));
}

// Q6_K: one float16 factor per row and block and int8 scales of 16 groups of 16 inputs. The products of a block are
// summed without the factor, which multiplies them once at the end.
template <int NT, bool kOneRow>
struct Multiply<QuantType::q6_k, NT, kOneRow> {
    static __device__ __forceinline__ void run(std::uint32_t block, const ActivationOperand<QuantType::q6_k, NT>& in,
                                               int j, float (&sums)[2][NT][4], int lane) {
        // Sums of this block, before they are multiplied with d. They begin with the offset of the codes: -32 times the
        // int8 scales times the sums of the activations, over the 16 half groups.
        float part[2][NT][4];
        {
            // Scales of half groups 2 q, 2 q + 1 and 8 + 2 q, 9 + 2 q: sub-blocks q / 2 and 2 + q / 2, bytes 2 (q % 2).
            const std::uint32_t at = block + 6144 + lane / 4 * 16, q = lane % 4;
            const uint4 low = load_shared4(at + q / 2 * 128), high = load_shared4(at + (2 + q / 2) * 128);
            const std::uint32_t selector = q % 2 == 0 ? 0x4140u : 0x4342u;
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                const std::uint32_t a0 = signed_pair(word_of(low, 2 * t), selector);
                const std::uint32_t a1 = signed_pair(word_of(low, 2 * t + 1), selector);
                const std::uint32_t a2 = signed_pair(word_of(high, 2 * t), selector);
                const std::uint32_t a3 = signed_pair(word_of(high, 2 * t + 1), selector);
#pragma unroll
                for (int nt = 0; nt < NT; ++nt) {
                    const float zero[4] = {};
                    mma(part[t][nt], a0, a1, a2, a3, in.sum(j, nt, 0), in.sum(j, nt, 1), zero);
                    mma(part[t][nt], a0, a1, a2, a3, in.sum(j, nt, 2), in.sum(j, nt, 3), part[t][nt]);
                }
            }
        }
#pragma unroll
        for (int sub = 0; sub < 4; ++sub) {
            const std::uint32_t plane = block + sub * 1024;
            const uint4 scale_bits =
                load_shared4(block + 6144 + sub * 128 + lane / 4 * 16);  // word (tile, half), byte (g, s)
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                const uint4 code = load_shared4(plane + t * 512 + lane * 16);
                std::uint32_t upper[2];  // g
                load_shared2(upper[0], upper[1], block + 4096 + sub * 512 + t * 256 + lane * 8);
#pragma unroll
                for (int g = 0; g < 2; ++g) {
                    std::uint32_t p[2][4];
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        unpack_nibbles(word_of(code, 2 * g + h), p[h]);
                        // The upper two bits, above the nibbles (upper_place).
#pragma unroll
                        for (int s = 0; s < 2; ++s) {
                            const int slot = 2 * h + s, shift = 2 * (slot % 2) + 8 * (slot / 2) - 4;
                            const std::uint32_t bits = shift < 0 ? upper[g] << -shift : upper[g] >> shift;
                            p[h][2 * s] |= bits & 0x00300030u;
                            p[h][2 * s + 1] |= bits & 0x03000300u;
                        }
                    }
                    // One product per 16 inputs, because each has a scale of its own.
#pragma unroll
                    for (int s = 0; s < 2; ++s) {
                        const auto code_of = [&](int half) {
                            return static_cast<float>(
                                static_cast<std::int8_t>(word_of(scale_bits, 2 * t + half) >> (8 * (2 * g + s))));
                        };
                        const float s0 = code_of(0), s1 = code_of(1);
#pragma unroll
                        for (int nt = 0; nt < NT; ++nt) {
                            const uint4 x = in.operand(8 * j + 2 * sub + g, nt);
                            const float zero[4] = {};
                            float d[4];
                            mma(d, p[0][2 * s], p[1][2 * s], p[0][2 * s + 1], p[1][2 * s + 1], s == 0 ? x.x : x.z,
                                s == 0 ? x.y : x.w, zero);
                            add_scaled<kOneRow>(part[t][nt], d, s0, s1);
                        }
                    }
                }
            }
        }
        // d of the lane's four rows (t, h).
        std::uint32_t low, high;
        load_shared2(low, high, block + 6656 + lane / 4 * 8);
        const float2 d0 = as_floats(low), d1 = as_floats(high);
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
            add_scaled<kOneRow>(sums[0][nt], part[0][nt], d0.x, d0.y);
            add_scaled<kOneRow>(sums[1][nt], part[1][nt], d1.x, d1.y);
        }
    }
};

// Plain 16-bit weights: activations come as two planes, high and low part (ActivationForm::planes), which have about
// twice the digits of one 16-bit number. The products of the low plane are added first, because they are small.
template <QuantType E, int NT, bool kOneRow>
struct MultiplyFloats {
    static __device__ __forceinline__ void run(std::uint32_t block, const ActivationOperand<E, NT>& in, int j,
                                               float (&sums)[2][NT][4], int lane) {
#pragma unroll
        for (int g = 0; g < 2; ++g) {
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                // Operand A as it lies in memory: step 0, then step 1.
                const uint4 a0 = load_shared4(block + (t * 2 + g) * 1024 + lane * 16);
                const uint4 a1 = load_shared4(block + (t * 2 + g) * 1024 + 512 + lane * 16);
#pragma unroll
                for (int nt = 0; nt < NT; ++nt) {
                    const uint4 high = in.operand(2 * j + g, nt, 0), low = in.operand(2 * j + g, nt, 1);
                    float(&d)[4] = sums[t][nt];
                    if constexpr (E == QuantType::bf16) {
                        // Low plane first, then the high one, for each 16 inputs.
                        mma_bf16(d, a0.x, a0.y, a0.z, a0.w, low.x, low.y, d);
                        mma_bf16(d, a0.x, a0.y, a0.z, a0.w, high.x, high.y, d);
                        mma_bf16(d, a1.x, a1.y, a1.z, a1.w, low.z, low.w, d);
                        mma_bf16(d, a1.x, a1.y, a1.z, a1.w, high.z, high.w, d);
                    } else {
                        mma(d, a0.x, a0.y, a0.z, a0.w, low.x, low.y, d);
                        mma(d, a0.x, a0.y, a0.z, a0.w, high.x, high.y, d);
                        mma(d, a1.x, a1.y, a1.z, a1.w, low.z, low.w, d);
                        mma(d, a1.x, a1.y, a1.z, a1.w, high.z, high.w, d);
                    }
                }
            }
        }
    }
};
template <int NT, bool kOneRow>
struct Multiply<QuantType::f16, NT, kOneRow> : MultiplyFloats<QuantType::f16, NT, kOneRow> {};
template <int NT, bool kOneRow>
struct Multiply<QuantType::bf16, NT, kOneRow> : MultiplyFloats<QuantType::bf16, NT, kOneRow> {};

}  // namespace foresay::kernels::cuda
