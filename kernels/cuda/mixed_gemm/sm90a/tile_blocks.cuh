// kernels/cuda/mixed_gemm/sm90a/tile_blocks.cuh: what a warp of a warpgroup unpacks of a panel's block: its tile of 16
// rows, as operands A of wgmma.
//
// The numbers are those of decode/multiply.cuh. A block is kPairs pairs of products; a product is kSteps steps of 16
// inputs, summed from 0 by the tensor cores and added with its scales by one fma.
//
//   pair(i, a, s)   operands A [product][step] and scales [product][row or row + 8] of pair i
//   first           operand A of what comes before the products (scales, minima): times the sums of the inputs
#pragma once

#include "kernels/cuda/decode/multiply.cuh"
#include "kernels/cuda/mixed_gemm/operands.cuh"

namespace foresay::kernels::cuda {

// What comes before the products of a block.
enum class FirstProduct : std::uint8_t {
    onto_sums,  // scales times sums, added by the tensor cores
    scaled,     // minima times sums, a product with scales of its own
    part,       // int8 scales times sums begin the sums of the block, which are scaled
                // at its end
    none,
};

__device__ inline void step_operand(const std::uint32_t (&p)[2][4], int s, std::uint32_t (&a)[4]) {
    a[0] = p[0][2 * s];
    a[1] = p[1][2 * s];
    a[2] = p[0][2 * s + 1];
    a[3] = p[1][2 * s + 1];
}

// acc += d times the scales of rows r and r + 8.
template <int kCount>
__device__ __forceinline__ void add_product(float (&acc)[kCount], const float (&d)[kCount], const float (&s)[2]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) acc[i] = fmaf(s[i / 2 % 2], d[i], acc[i]);
}

template <QuantType E>
struct TileBlock;
// Blocks by number, and how a warp multiplies them (mixed_wgmma.cuh, packed_tile.cuh).
template <QuantType E>
struct TileBlocks;

template <QuantType E>
struct TileBlockScaled {
    static constexpr FirstProduct kFirst = FirstProduct::onto_sums;
    static constexpr int kPairs = 1, kSteps = 2;
    std::uint32_t first[4];
    std::uint32_t at;

    __device__ TileBlockScaled(std::uint32_t block, int tile, int lane)
        : at(block + tile * (E == QuantType::q4_0 ? 512 : 1024) + lane * 16) {
        load_shared2(first[0], first[1], block + block_format(E).scale_begin + lane / 4 * 16 + tile * 8);
        first[2] = first[3] = 0;
    }
    __device__ void pair(int, std::uint32_t (&a)[2][2][4], float (&s)[2][2]) const {
        uint4 nibbles;
        if constexpr (E == QuantType::q4_0) nibbles = load_shared4(at);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            std::uint32_t p[2][4];
            if constexpr (E == QuantType::q4_0) {
                unpack_nibbles(word_of(nibbles, 2 * g), p[0]);
                unpack_nibbles(word_of(nibbles, 2 * g + 1), p[1]);
            } else {
                const uint4 code = load_shared4(at + g * 512);
#pragma unroll
                for (int i = 0; i < 4; ++i) {  // (half, step)
                    const std::uint32_t word = word_of(code, i);
                    p[i / 2][2 * (i % 2)] = word & 0x00ff00ffu;
                    p[i / 2][2 * (i % 2) + 1] = __byte_perm(word, 0, 0x4341);
                }
            }
            step_operand(p, 0, a[g][0]);
            step_operand(p, 1, a[g][1]);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float2 both = as_floats(first[h]);
                s[g][h] = g == 0 ? both.x : both.y;
            }
        }
    }
};
template <>
struct TileBlock<QuantType::q4_0> : TileBlockScaled<QuantType::q4_0> {
    using TileBlockScaled::TileBlockScaled;
};
template <>
struct TileBlock<QuantType::q8_0> : TileBlockScaled<QuantType::q8_0> {
    using TileBlockScaled::TileBlockScaled;
};

template <QuantType E>
struct TileBlockK {
    static constexpr FirstProduct kFirst = FirstProduct::scaled;
    static constexpr int kPairs = 4, kSteps = 2;
    static constexpr bool kFifth = E == QuantType::q5_k;
    static constexpr int kScales = kFifth ? 5120 : 4096;
    std::uint32_t first[4];
    float first_scale[2];
    float d[2];
    std::uint32_t nibbles[2], upper[2];
    std::uint32_t codes_at, fifth_at;

    __device__ TileBlockK(std::uint32_t block, int tile, int lane)
        : codes_at(block + tile * 512 + lane * 16), fifth_at(block + 4096 + lane * 8 + tile * 4) {
        const std::uint32_t row = lane / 4, at = block + kScales + 128 + row * 48 + tile * 24;
        std::uint32_t both[2], words[6];
        load_shared2(both[0], both[1], block + kScales + row * 16 + tile * 8);
        load_shared2(words[0], words[1], at);
        load_shared2(words[2], words[3], at + 8);
        load_shared2(words[4], words[5], at + 16);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float2 factors = as_floats(both[h]);
            d[h] = factors.x * kCodeScale;
            first_scale[h] = factors.y * kMinimumScale;
            nibbles[h] = words[3 * h];
            upper[h] = words[3 * h + 2];
            first[h] = first[h + 2] = k_minima(words[3 * h + 1], words[3 * h + 2], lane % 4);
        }
    }
    __device__ void pair(int sub, std::uint32_t (&a)[2][2][4], float (&s)[2][2]) const {
        const uint4 code = load_shared4(codes_at + sub * 1024);
        std::uint32_t fifth = 0;
        if (kFifth) fifth = static_cast<std::uint32_t>(load_shared1(fifth_at + sub * 256));
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            std::uint32_t p[2][4];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                unpack_nibbles(word_of(code, 2 * g + h), p[h]);
                if (kFifth) {
#pragma unroll
                    for (int step = 0; step < 2; ++step) {
                        const int slot = 4 * g + 2 * h + step, shift = (slot < 4 ? slot : slot + 4) - 4;
                        const std::uint32_t bits = shift < 0 ? fifth << -shift : fifth >> shift;
                        p[h][2 * step] |= bits & 0x00100010u;
                        p[h][2 * step + 1] |= bits & 0x01000100u;
                    }
                }
                const float2 scales = as_floats(k_scales(nibbles[h], upper[h], sub));
                s[g][h] = (g == 0 ? scales.x : scales.y) * d[h];
            }
            step_operand(p, 0, a[g][0]);
            step_operand(p, 1, a[g][1]);
        }
    }
};
template <>
struct TileBlock<QuantType::q4_k> : TileBlockK<QuantType::q4_k> {
    using TileBlockK::TileBlockK;
};
template <>
struct TileBlock<QuantType::q5_k> : TileBlockK<QuantType::q5_k> {
    using TileBlockK::TileBlockK;
};

template <>
struct TileBlock<QuantType::q6_k> {
    static constexpr FirstProduct kFirst = FirstProduct::part;
    static constexpr int kPairs = 8, kSteps = 1;
    std::uint32_t first[4];
    float d[2];
    std::uint32_t codes_at, upper_at, scales_at;

    __device__ TileBlock(std::uint32_t block, int tile, int lane)
        : codes_at(block + tile * 512 + lane * 16),
          upper_at(block + 4096 + tile * 256 + lane * 8),
          scales_at(block + 6144 + lane / 4 * 16 + tile * 8) {
        const std::uint32_t q = lane % 4, selector = q % 2 == 0 ? 0x4140u : 0x4342u;
        std::uint32_t low[2], high[2];
        load_shared2(low[0], low[1], scales_at + q / 2 * 128);
        load_shared2(high[0], high[1], scales_at + (2 + q / 2) * 128);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            first[h] = signed_pair(low[h], selector);
            first[h + 2] = signed_pair(high[h], selector);
        }
        const float2 both = as_floats(static_cast<std::uint32_t>(load_shared1(block + 6656 + lane / 4 * 8 + tile * 4)));
        d[0] = both.x;
        d[1] = both.y;
    }
    __device__ void pair(int i, std::uint32_t (&a)[2][1][4], float (&s)[2][2]) const {
        const int sub = i / 2, g = i % 2;
        std::uint32_t word[2], scale[2], p[2][4];
        load_shared2(word[0], word[1], codes_at + sub * 1024 + g * 8);
        load_shared2(scale[0], scale[1], scales_at + sub * 128);
        const auto upper = static_cast<std::uint32_t>(load_shared1(upper_at + sub * 512 + g * 4));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            unpack_nibbles(word[h], p[h]);
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                const int slot = 2 * h + step, shift = 2 * (slot % 2) + 8 * (slot / 2) - 4;
                const std::uint32_t bits = shift < 0 ? upper << -shift : upper >> shift;
                p[h][2 * step] |= bits & 0x00300030u;
                p[h][2 * step + 1] |= bits & 0x03000300u;
                s[step][h] = static_cast<float>(static_cast<std::int8_t>(scale[h] >> (8 * (2 * g + step))));
            }
        }
        step_operand(p, 0, a[0][0]);
        step_operand(p, 1, a[1][0]);
    }
};

// float16 and bfloat16: operands A as they lie in memory.
template <QuantType E>
struct TileBlockFloats {
    static constexpr FirstProduct kFirst = FirstProduct::none;
    std::uint32_t at;

    __device__ TileBlockFloats(std::uint32_t block, int tile, int lane) : at(block + tile * 2048 + lane * 16) {}
    __device__ void step(int i, std::uint32_t (&a)[4]) const {
        const uint4 v = load_shared4(at + i * 512);
        a[0] = v.x;
        a[1] = v.y;
        a[2] = v.z;
        a[3] = v.w;
    }
};
template <>
struct TileBlock<QuantType::f16> : TileBlockFloats<QuantType::f16> {
    using TileBlockFloats::TileBlockFloats;
};
template <>
struct TileBlock<QuantType::bf16> : TileBlockFloats<QuantType::bf16> {
    using TileBlockFloats::TileBlockFloats;
};

}  // namespace foresay::kernels::cuda
