// kernels/cuda/experts/sm90a/group_weights.cuh: what a warp of a warpgroup unpacks of 64 inputs of a panel's block: its
// tile of 16 rows, as float16 operands A of four wgmma.
//
//   GroupWeights<E>(block, tile, lane, times)   reads what concerns the whole block (K-quants)
//   unpack(sub, a)                              operands of 16 inputs each, of the 64 from 64 `sub` on
//
// Numbers:  a scale times 2^shift (`times`) is rounded to float16; it times an integer code, minus a minimum, is
//           rounded once more.
#pragma once

#include <cuda_bf16.h>

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/half_pairs.cuh"
#include "kernels/cuda/weights/panel_format.h"

namespace foresay::kernels::cuda {

using StepOperands = std::uint32_t[4][4];  // [32 inputs, 16 of them]: operand A of 16 inputs

// Word i of four; i must be a constant after unrolling.
__device__ __forceinline__ std::uint32_t word4(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}
// A half of a pair, twice.
__device__ __forceinline__ __half2 low_twice(std::uint32_t pair) { return as_halves(__byte_perm(pair, 0, 0x1010)); }
__device__ __forceinline__ __half2 high_twice(std::uint32_t pair) { return as_halves(__byte_perm(pair, 0, 0x3232)); }

// Integers below 1,024 in the low bits of two halves, plus `offset`, as float16. Exact: 0x6400 | u is 1024 + u.
__device__ __forceinline__ __half2 integers(std::uint32_t bits, float offset) {
    return __hadd2(as_halves(bits | 0x64006400u), __float2half2_rn(offset - 1024.0f));
}
// The pair of a word of nibbles in bits 0 or 4 of both halves, with more bits above.
__device__ __forceinline__ __half2 low_codes(std::uint32_t w, std::uint32_t upper, float offset) {
    return integers((w & 0x000f000fu) | upper, offset);
}
__device__ __forceinline__ __half2 high_codes(std::uint32_t w, std::uint32_t upper, float offset) {
    // 1024 + 16 code.
    return __hfma2(as_halves((w & 0x00f000f0u) | upper | 0x64006400u), __float2half2_rn(0.0625f),
                   __float2half2_rn(offset - 64.0f));
}

template <QuantType E>
class GroupWeights;

// Codes times scale: the four pairs of a word of nibbles. `a` as [step][pair] of half h.
template <>
class GroupWeights<QuantType::q4_0> {
public:
    __device__ GroupWeights(std::uint32_t block, int tile, int lane, float times)
        : codes_(block + tile * 512 + lane * 16),
          scales_(block + kPlaneBytes + lane / 4 * 16 + tile * 8),
          times_(__float2half2_rn(times)) {}
    __device__ __forceinline__ void unpack(int /*sub*/, StepOperands& a) const {
        const uint4 code = load_shared4(codes_);
        std::uint32_t d[2];
        load_shared2(d[0], d[1], scales_);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const std::uint32_t both = as_bits(__hmul2(as_halves(d[h]), times_));
            const __half2 scale[2] = {low_twice(both), high_twice(both)};
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                const std::uint32_t w = word4(code, 2 * g + h);
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    const std::uint32_t v = w >> (8 * s);
                    a[2 * g + s][h] = as_bits(__hmul2(low_codes(v, 0, -8.0f), scale[g]));
                    a[2 * g + s][2 + h] = as_bits(__hmul2(high_codes(v, 0, -8.0f), scale[g]));
                }
            }
        }
    }

private:
    std::uint32_t codes_, scales_;
    __half2 times_;
};

template <>
class GroupWeights<QuantType::q8_0> {
public:
    __device__ GroupWeights(std::uint32_t block, int tile, int lane, float times)
        : codes_(block + tile * 1024 + lane * 16),
          scales_(block + 2 * kPlaneBytes + lane / 4 * 16 + tile * 8),
          times_(__float2half2_rn(times)) {}
    __device__ __forceinline__ void unpack(int /*sub*/, StepOperands& a) const {
        std::uint32_t d[2];
        load_shared2(d[0], d[1], scales_);
        __half2 scale[2][2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const std::uint32_t both = as_bits(__hmul2(as_halves(d[h]), times_));
            scale[h][0] = low_twice(both);
            scale[h][1] = high_twice(both);
        }
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            const uint4 code = load_shared4(codes_ + g * 512);  // word (h, s), bytes c = 0, 2, 1, 3
#pragma unroll
            for (int h = 0; h < 2; ++h) {
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    const std::uint32_t w = word4(code, 2 * h + s);
                    a[2 * g + s][h] = as_bits(__hmul2(integers(w & 0x00ff00ffu, -128.0f), scale[h][g]));
                    a[2 * g + s][2 + h] = as_bits(__hmul2(integers(w >> 8 & 0x00ff00ffu, -128.0f), scale[h][g]));
                }
            }
        }
    }

private:
    std::uint32_t codes_, scales_;
    __half2 times_;
};

// The bits of a code become those of a float16 that is 2^-14 times the number; twice the scale comes from the exponent.
template <>
class GroupWeights<QuantType::mxfp4> {
public:
    __device__ GroupWeights(std::uint32_t block, int tile, int lane, float times)
        : codes_(block + tile * 512 + lane * 16),
          scales_(block + kPlaneBytes + lane / 4 * 8 + tile * 4),
          times_(times * 8192.0f) {}
    __device__ __forceinline__ void unpack(int /*sub*/, StepOperands& a) const {
        const uint4 code = load_shared4(codes_);
        const auto exponents = static_cast<std::uint32_t>(load_shared1(scales_));  // bytes (h, g)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                const float twice = __uint_as_float(((exponents >> (8 * (2 * h + g)) & 255u) + 1u) << 23);
                const __half2 scale = __float2half2_rn(twice * times_);
                std::uint32_t p[4];
                unpack_float_codes(word4(code, 2 * g + h), p);
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    a[2 * g + s][h] = as_bits(__hmul2(as_halves(p[2 * s]), scale));
                    a[2 * g + s][2 + h] = as_bits(__hmul2(as_halves(p[2 * s + 1]), scale));
                }
            }
        }
    }

private:
    std::uint32_t codes_, scales_;
    float times_;
};

// Q4_K, and Q5_K with its fifth bits.
template <bool kFifth>
class GroupWeightsK {
    static constexpr int kFactors = kFifth ? offsetof(PanelQ5_K, d) : offsetof(PanelQ4_K, d);
    static constexpr int kScaleCodes = kFifth ? offsetof(PanelQ5_K, scales) : offsetof(PanelQ4_K, scales);

public:
    __device__ GroupWeightsK(std::uint32_t block, int tile, int lane, float times)
        : codes_(block + tile * 512 + lane * 16),
          fifth_(kFifth ? block + offsetof(PanelQ5_K, fifth) + lane * 8 + tile * 4 : 0) {
        std::uint32_t both[2];
        load_shared2(both[0], both[1], block + kFactors + lane / 4 * 16 + tile * 8);
        std::uint32_t w[6];
        const std::uint32_t at = block + kScaleCodes + lane / 4 * 48 + tile * 24;
#pragma unroll
        for (int i = 0; i < 3; ++i) load_shared2(w[2 * i], w[2 * i + 1], at + 8 * i);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const std::uint32_t scaled = as_bits(__hmul2(as_halves(both[h]), __float2half2_rn(times)));
            d_[h] = low_twice(scaled);
            minimum_[h] = __hneg2(high_twice(scaled));
#pragma unroll
            for (int i = 0; i < 3; ++i) words_[h][i] = w[3 * h + i];
        }
    }
    // `sub` must be a constant after unrolling.
    __device__ __forceinline__ void unpack(int sub, StepOperands& a) const {
        const uint4 code = load_shared4(codes_ + sub * kPlaneBytes);
        std::uint32_t fifth = 0;
        if (kFifth) fifth = static_cast<std::uint32_t>(load_shared1(fifth_ + sub * (kPlaneBytes / 4)));
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            // Both groups of these inputs (ScaleCodePlace).
            const ScaleCodePlace place(2 * sub);
            const auto shifted = [](std::uint32_t bits, int by) { return by < 0 ? bits << -by : bits >> by; };
            const std::uint32_t scales =
                as_bits(__hmul2(integers((words_[h][0] >> place.nibble & 0x000f000fu) |
                                             (shifted(words_[h][2], place.scale_upper - 4) & 0x00300030u),
                                         0.0f),
                                d_[h]));
            const std::uint32_t minima =
                as_bits(__hmul2(integers((words_[h][1] >> place.nibble & 0x000f000fu) |
                                             (shifted(words_[h][2], place.minimum_upper - 4) & 0x00300030u),
                                         0.0f),
                                minimum_[h]));
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                const __half2 scale = g == 0 ? low_twice(scales) : high_twice(scales);
                const __half2 minimum = g == 0 ? low_twice(minima) : high_twice(minima);
                const std::uint32_t w = word4(code, 2 * g + h);
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    const std::uint32_t v = w >> (8 * s);
                    std::uint32_t low = 0, high = 0;
                    if (kFifth) {
                        const int slot = 4 * g + 2 * h + s, e = slot < 4 ? slot : slot + 4;  // fifth_place()
                        low = shifted(fifth, e - 4) & 0x00100010u;
                        high = shifted(fifth, e - 4) & 0x01000100u;
                    }
                    a[2 * g + s][h] = as_bits(__hfma2(low_codes(v, low, 0.0f), scale, minimum));
                    a[2 * g + s][2 + h] = as_bits(__hfma2(high_codes(v, high, 0.0f), scale, minimum));
                }
            }
        }
    }

private:
    std::uint32_t codes_, fifth_, words_[2][3];  // scales, minima, upper bits
    __half2 d_[2], minimum_[2];
};
template <>
class GroupWeights<QuantType::q4_k> : public GroupWeightsK<false> {
    using GroupWeightsK::GroupWeightsK;
};
template <>
class GroupWeights<QuantType::q5_k> : public GroupWeightsK<true> {
    using GroupWeightsK::GroupWeightsK;
};

template <>
class GroupWeights<QuantType::q6_k> {
public:
    __device__ GroupWeights(std::uint32_t block, int tile, int lane, float times)
        : codes_(block + tile * 512 + lane * 16),
          upper_(block + offsetof(PanelQ6_K, upper) + tile * 256 + lane * 8),
          scales_(block + offsetof(PanelQ6_K, scales) + lane / 4 * 16 + tile * 8) {
        const auto d = static_cast<std::uint32_t>(
            load_shared1(block + offsetof(PanelQ6_K, d) + lane / 4 * 8 + tile * 4));  // of both halves
        const std::uint32_t scaled = as_bits(__hmul2(as_halves(d), __float2half2_rn(times)));
        d_[0] = low_twice(scaled);
        d_[1] = high_twice(scaled);
    }
    __device__ __forceinline__ void unpack(int sub, StepOperands& a) const {
        const uint4 code = load_shared4(codes_ + sub * kPlaneBytes);
        std::uint32_t upper[2], bytes[2];  // g; h: bytes (g, s)
        load_shared2(upper[0], upper[1], upper_ + sub * (kPlaneBytes / 2));
        load_shared2(bytes[0], bytes[1], scales_ + sub * 128);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const std::uint32_t unsigned_bytes = bytes[h] ^ 0x80808080u;
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                const std::uint32_t pair = __byte_perm(unsigned_bytes, 0x64646464u, g == 0 ? 0x4140u : 0x4342u);
                const std::uint32_t scales =
                    as_bits(__hmul2(__hadd2(as_halves(pair), __float2half2_rn(-1152.0f)), d_[h]));
                const std::uint32_t w = word4(code, 2 * g + h);
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    const __half2 scale = s == 0 ? low_twice(scales) : high_twice(scales);
                    const std::uint32_t v = w >> (8 * s);
                    const int shift = 2 * s + 8 * h - 4;  // upper_place()
                    const std::uint32_t bits = shift < 0 ? upper[g] << -shift : upper[g] >> shift;
                    a[2 * g + s][h] = as_bits(__hmul2(low_codes(v, bits & 0x00300030u, -32.0f), scale));
                    a[2 * g + s][2 + h] = as_bits(__hmul2(high_codes(v, bits & 0x03000300u, -32.0f), scale));
                }
            }
        }
    }

private:
    std::uint32_t codes_, upper_, scales_;
    __half2 d_[2];
};

// Float16 as it is; bfloat16 times 2^shift, rounded.
template <bool kBf16>
class GroupFloats {
public:
    __device__ GroupFloats(std::uint32_t block, int tile, int lane, float times)
        : at_(block + tile * 2048 + lane * 16), times_(times) {}
    __device__ __forceinline__ void unpack(int /*sub*/, StepOperands& a) const {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const uint4 v = load_shared4(at_ + i * 512);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                std::uint32_t pair = word4(v, j);
                if (kBf16) {
                    pair = as_bits(__floats2half2_rn(__uint_as_float(pair << 16) * times_,
                                                     __uint_as_float(pair & 0xffff0000u) * times_));
                } else {
                    pair = as_bits(__hmul2(as_halves(pair), __float2half2_rn(times_)));
                }
                a[i][j] = pair;
            }
        }
    }

private:
    std::uint32_t at_;
    float times_;
};
template <>
class GroupWeights<QuantType::f16> : public GroupFloats<false> {
    using GroupFloats::GroupFloats;
};
template <>
class GroupWeights<QuantType::bf16> : public GroupFloats<true> {
    using GroupFloats::GroupFloats;
};

}  // namespace foresay::kernels::cuda
