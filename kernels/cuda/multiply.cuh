// kernels/cuda/multiply.cuh: a block of a panel times the inputs of up to 16 rows, by tensor cores, for every encoding.
//
// Layout:   a warp holds the sums of 32 packed rows x 8 NT rows of the batch as accumulators of mma.m16n8k16:
//           sums[tile][nt][i], i as the instruction has it. Inputs lie in shared memory as float16 (Slice).
// Precision: codes enter as subnormal float16 numbers, code x 2^-24, exact (mma is as fast with them); products are exact;
//           the sum of 16 or 32 of them is float32 and meets its scale once. The middle of the codes is taken off through
//           the initial accumulator, which holds -middle times the sum of the inputs as they were rounded.
// Law 1:    a column of an mma depends on that column of B alone. The order of sums is that of the inputs.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/formats.h"

namespace foresay::kernels::cuda {

inline constexpr float kCodeScale = 16777216.0f;  // 2^24

// How inputs are prepared for an encoding.
template <Encoding E>
struct InputForm {
    static constexpr bool floats = E == Encoding::f16 || E == Encoding::bf16;
    static constexpr bool bf16 = E == Encoding::bf16;
    static constexpr int planes = floats ? 2 : 1;  // high and low part
    static constexpr bool minima = E == Encoding::q4_k || E == Encoding::q5_k;
    static constexpr int sum_inputs = E == Encoding::q6_k ? 16 : 32;  // inputs per sum
    // Pairs c = 2, 3 meet codes that were left four bits higher.
    static constexpr bool quarters_lowered = !floats && E != Encoding::q8_0;
    // What is taken off every code; with minima the sum itself is kept, as if it were 1.
    static constexpr std::uint32_t middle = E == Encoding::q4_0   ? 8
                                            : E == Encoding::q8_0 ? 128
                                            : E == Encoding::q6_k ? 32
                                                                  : 1;
};

// One warp's slice of the inputs in shared memory.
struct Slice {
    std::uint32_t x[2];      // address of this lane's first 16 bytes, for nt 0 and 1
    std::uint32_t low;       // from the high to the low plane, bytes
    std::uint32_t sums[2];   // address of this lane's first sums for its two columns: {s(t), s(t + 1)} twice
    std::uint32_t sum_step;  // bytes from one group's sums to the next's
};

__device__ inline void mma(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                           std::uint32_t b0, std::uint32_t b1, const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ inline void mma_bf16(float (&d)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t a2, std::uint32_t a3,
                                std::uint32_t b0, std::uint32_t b1, const float (&c)[4]) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

__device__ inline float2 halves(std::uint32_t bits) { return __half22float2(*reinterpret_cast<__half2*>(&bits)); }

__device__ inline void load_sums(float (&c)[4], std::uint32_t address) {
    const uint4 bits = load_shared4(address);
    c[0] = __uint_as_float(bits.x);
    c[1] = __uint_as_float(bits.y);
    c[2] = __uint_as_float(bits.z);
    c[3] = __uint_as_float(bits.w);
}

// Four pairs of codes of one word, as operands of steps 0 and 1: p[0], p[1] for c = 0, 1 and 2, 3 of step 0, ...
__device__ inline void unpack_nibbles(std::uint32_t word, std::uint32_t (&p)[4]) {
    const std::uint32_t upper = word >> 8;
    p[0] = word & 0x000f000fu;
    p[1] = word & 0x00f000f0u;
    p[2] = upper & 0x000f000fu;
    p[3] = upper & 0x00f000f0u;
}

// sums += scale of the rows r, r + 8 times d
__device__ inline void add_scaled(float (&sums)[4], const float (&d)[4], float scale0, float scale1) {
    sums[0] = fmaf(scale0, d[0], sums[0]);
    sums[1] = fmaf(scale0, d[1], sums[1]);
    sums[2] = fmaf(scale1, d[2], sums[2]);
    sums[3] = fmaf(scale1, d[3], sums[3]);
}

__device__ inline std::uint32_t word_of(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

template <Encoding E, int NT>
struct Multiply;

// Q4_0 and Q8_0 differ in how codes are unpacked.
template <int NT>
struct Multiply<Encoding::q4_0, NT> {
    static __device__ void run(std::uint32_t block, const Slice& slice, int group, float (&sums)[2][NT][4], int lane) {
        const uint4 code0 = load_shared4(block + lane * 16), code1 = load_shared4(block + 512 + lane * 16);
        const uint4 scale = load_shared4(block + 1024 + lane / 4 * 16);
        const float2 s00 = halves(scale.x), s01 = halves(scale.y), s10 = halves(scale.z), s11 = halves(scale.w);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            std::uint32_t p[2][2][4];  // tile, half
            unpack_nibbles(word_of(code0, 2 * g), p[0][0]);
            unpack_nibbles(word_of(code0, 2 * g + 1), p[0][1]);
            unpack_nibbles(word_of(code1, 2 * g), p[1][0]);
            unpack_nibbles(word_of(code1, 2 * g + 1), p[1][1]);
#pragma unroll
            for (int nt = 0; nt < NT; ++nt) {
                const uint4 x = load_shared4(slice.x[nt] + (group + g) * 64);
                float c[4];
                load_sums(c, slice.sums[nt] + (group + g) * slice.sum_step);
#pragma unroll
                for (int t = 0; t < 2; ++t) {
                    float d[4];
                    mma(d, p[t][0][0], p[t][1][0], p[t][0][1], p[t][1][1], x.x, x.y, c);
                    mma(d, p[t][0][2], p[t][1][2], p[t][0][3], p[t][1][3], x.z, x.w, d);
                    const float a = t == 0 ? (g == 0 ? s00.x : s00.y) : (g == 0 ? s10.x : s10.y);
                    const float b = t == 0 ? (g == 0 ? s01.x : s01.y) : (g == 0 ? s11.x : s11.y);
                    add_scaled(sums[t][nt], d, a, b);
                }
            }
        }
    }
};

template <int NT>
struct Multiply<Encoding::q8_0, NT> {
    static __device__ void run(std::uint32_t block, const Slice& slice, int group, float (&sums)[2][NT][4], int lane) {
        const uint4 scale = load_shared4(block + 2048 + lane / 4 * 16);
        const float2 s00 = halves(scale.x), s01 = halves(scale.y), s10 = halves(scale.z), s11 = halves(scale.w);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            std::uint32_t p[2][2][4];  // tile, half; pairs of step 0, then of step 1
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                const uint4 code = load_shared4(block + (t * 2 + g) * 512 + lane * 16);
#pragma unroll
                for (int i = 0; i < 4; ++i) {  // (half, step)
                    const std::uint32_t word = word_of(code, i);
                    p[t][i / 2][2 * (i % 2)] = word & 0x00ff00ffu;
                    p[t][i / 2][2 * (i % 2) + 1] = __byte_perm(word, 0, 0x4341);
                }
            }
#pragma unroll
            for (int nt = 0; nt < NT; ++nt) {
                const uint4 x = load_shared4(slice.x[nt] + (group + g) * 64);
                float c[4];
                load_sums(c, slice.sums[nt] + (group + g) * slice.sum_step);
#pragma unroll
                for (int t = 0; t < 2; ++t) {
                    float d[4];
                    mma(d, p[t][0][0], p[t][1][0], p[t][0][1], p[t][1][1], x.x, x.y, c);
                    mma(d, p[t][0][2], p[t][1][2], p[t][0][3], p[t][1][3], x.z, x.w, d);
                    const float a = t == 0 ? (g == 0 ? s00.x : s00.y) : (g == 0 ? s10.x : s10.y);
                    const float b = t == 0 ? (g == 0 ? s01.x : s01.y) : (g == 0 ? s11.x : s11.y);
                    add_scaled(sums[t][nt], d, a, b);
                }
            }
        }
    }
};

// The scales and minima of a row's group, from its 12 bytes.
__device__ inline float k_scale(const std::uint32_t (&words)[3], int group) {
    return static_cast<float>((words[0] >> (4 * group) & 15u) | (words[2] >> (2 * group) & 3u) << 4);
}
__device__ inline float k_minimum(const std::uint32_t (&words)[3], int group) {
    return static_cast<float>((words[1] >> (4 * group) & 15u) | (words[2] >> (16 + 2 * group) & 3u) << 4);
}

// Q4_K, and Q5_K with its fifth bits.
template <bool Fifth, int NT>
struct MultiplyK {
    static constexpr int kScales = Fifth ? 5120 : 4096;
    static __device__ void run(std::uint32_t block, const Slice& slice, int group, float (&sums)[2][NT][4], int lane) {
        const std::uint32_t row = lane / 4;
        const uint4 d_bits = load_shared4(block + kScales + row * 16);
        std::uint32_t words[4][3];  // (tile, half)
        {
            const uint4 w0 = load_shared4(block + kScales + 128 + row * 48);
            const uint4 w1 = load_shared4(block + kScales + 128 + row * 48 + 16);
            const uint4 w2 = load_shared4(block + kScales + 128 + row * 48 + 32);
            const std::uint32_t flat[12] = {w0.x, w0.y, w0.z, w0.w, w1.x, w1.y, w1.z, w1.w, w2.x, w2.y, w2.z, w2.w};
#pragma unroll
            for (int i = 0; i < 12; ++i) words[i / 3][i % 3] = flat[i];
        }
#pragma unroll
        for (int sub = 0; sub < 4; ++sub) {
            const std::uint32_t plane = block + sub * 1024;
            const uint4 code[2] = {load_shared4(plane + lane * 16), load_shared4(plane + 512 + lane * 16)};
            std::uint32_t fifth[2] = {};
            if (Fifth) {
                load_shared2(fifth[0], fifth[1], block + 4096 + sub * 256 + lane * 8);
            }
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                std::uint32_t p[2][2][4];
#pragma unroll
                for (int t = 0; t < 2; ++t) {
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        unpack_nibbles(word_of(code[t], 2 * g + h), p[t][h]);
                        if (Fifth) {
#pragma unroll
                            for (int s = 0; s < 2; ++s) {
                                const int slot = 4 * g + 2 * h + s, shift = (slot < 4 ? slot : slot + 4) - 4;
                                const std::uint32_t bits = shift < 0 ? fifth[t] << -shift : fifth[t] >> shift;
                                p[t][h][2 * s] |= bits & 0x00100010u;
                                p[t][h][2 * s + 1] |= bits & 0x01000100u;
                            }
                        }
                    }
                }
                float scale[4], minimum[4];
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    const float2 d = halves(word_of(d_bits, i));
                    scale[i] = d.x * k_scale(words[i], 2 * sub + g);
                    minimum[i] = d.y * k_minimum(words[i], 2 * sub + g);
                }
                const int at = group + 2 * sub + g;
#pragma unroll
                for (int nt = 0; nt < NT; ++nt) {
                    const uint4 x = load_shared4(slice.x[nt] + at * 64);
                    float c[4];
                    load_sums(c, slice.sums[nt] + at * slice.sum_step);  // minus the sum of the inputs
                    const float zero[4] = {};
#pragma unroll
                    for (int t = 0; t < 2; ++t) {
                        float d[4];
                        mma(d, p[t][0][0], p[t][1][0], p[t][0][1], p[t][1][1], x.x, x.y, zero);
                        mma(d, p[t][0][2], p[t][1][2], p[t][0][3], p[t][1][3], x.z, x.w, d);
                        add_scaled(sums[t][nt], d, scale[2 * t], scale[2 * t + 1]);
                        add_scaled(sums[t][nt], c, minimum[2 * t], minimum[2 * t + 1]);
                    }
                }
            }
        }
    }
};
template <int NT>
struct Multiply<Encoding::q4_k, NT> : MultiplyK<false, NT> {};
template <int NT>
struct Multiply<Encoding::q5_k, NT> : MultiplyK<true, NT> {};

template <int NT>
struct Multiply<Encoding::q6_k, NT> {
    static __device__ void run(std::uint32_t block, const Slice& slice, int group, float (&sums)[2][NT][4], int lane) {
        float d_row[4];  // (tile, half)
        {
            std::uint32_t low, high;
            load_shared2(low, high, block + 6656 + lane / 4 * 8);
            const float2 a = halves(low), b = halves(high);
            d_row[0] = a.x;
            d_row[1] = a.y;
            d_row[2] = b.x;
            d_row[3] = b.y;
        }
#pragma unroll
        for (int sub = 0; sub < 4; ++sub) {
            const std::uint32_t plane = block + sub * 1024;
            const uint4 code[2] = {load_shared4(plane + lane * 16), load_shared4(plane + 512 + lane * 16)};
            std::uint32_t upper[2][2];  // tile, g
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                load_shared2(upper[t][0], upper[t][1], block + 4096 + sub * 512 + t * 256 + lane * 8);
            }
            const uint4 scale_bits =
                load_shared4(block + 6144 + sub * 128 + lane / 4 * 16);  // word (tile, half), byte (g, s)
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                std::uint32_t p[2][2][4];
#pragma unroll
                for (int t = 0; t < 2; ++t) {
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        unpack_nibbles(word_of(code[t], 2 * g + h), p[t][h]);
#pragma unroll
                        for (int s = 0; s < 2; ++s) {
                            const int slot = 2 * h + s, shift = 2 * (slot % 2) + 8 * (slot / 2) - 4;
                            const std::uint32_t bits = shift < 0 ? upper[t][g] << -shift : upper[t][g] >> shift;
                            p[t][h][2 * s] |= bits & 0x00300030u;
                            p[t][h][2 * s + 1] |= bits & 0x03000300u;
                        }
                    }
                }
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    float scale[4];
#pragma unroll
                    for (int i = 0; i < 4; ++i) {
                        const auto code8 = static_cast<std::int8_t>(word_of(scale_bits, i) >> (8 * (2 * g + s)));
                        scale[i] = d_row[i] * static_cast<float>(code8);
                    }
#pragma unroll
                    for (int nt = 0; nt < NT; ++nt) {
                        std::uint32_t x0, x1;
                        load_shared2(x0, x1, slice.x[nt] + (group + 2 * sub + g) * 64 + 8 * s);
                        float c[4];
                        load_sums(c, slice.sums[nt] + (2 * (group + 2 * sub + g) + s) * slice.sum_step);
#pragma unroll
                        for (int t = 0; t < 2; ++t) {
                            float d[4];
                            mma(d, p[t][0][2 * s], p[t][1][2 * s], p[t][0][2 * s + 1], p[t][1][2 * s + 1], x0, x1, c);
                            add_scaled(sums[t][nt], d, scale[2 * t], scale[2 * t + 1]);
                        }
                    }
                }
            }
        }
    }
};

// Plain 16-bit values: the inputs come as two parts, the sums of the small part first.
template <bool Bf16, int NT>
struct MultiplyFloats {
    static __device__ void run(std::uint32_t block, const Slice& slice, int group, float (&sums)[2][NT][4], int lane) {
#pragma unroll
        for (int g = 0; g < 2; ++g) {
#pragma unroll
            for (int nt = 0; nt < NT; ++nt) {
                const uint4 high = load_shared4(slice.x[nt] + (group + g) * 64);
                const uint4 low = load_shared4(slice.x[nt] + slice.low + (group + g) * 64);
#pragma unroll
                for (int t = 0; t < 2; ++t) {
#pragma unroll
                    for (int s = 0; s < 2; ++s) {
                        const uint4 a = load_shared4(block + ((t * 2 + g) * 2 + s) * 512 + lane * 16);
                        const std::uint32_t l0 = s == 0 ? low.x : low.z, l1 = s == 0 ? low.y : low.w;
                        const std::uint32_t h0 = s == 0 ? high.x : high.z, h1 = s == 0 ? high.y : high.w;
                        if (Bf16) {
                            mma_bf16(sums[t][nt], a.x, a.y, a.z, a.w, l0, l1, sums[t][nt]);
                            mma_bf16(sums[t][nt], a.x, a.y, a.z, a.w, h0, h1, sums[t][nt]);
                        } else {
                            mma(sums[t][nt], a.x, a.y, a.z, a.w, l0, l1, sums[t][nt]);
                            mma(sums[t][nt], a.x, a.y, a.z, a.w, h0, h1, sums[t][nt]);
                        }
                    }
                }
            }
        }
    }
};
template <int NT>
struct Multiply<Encoding::f16, NT> : MultiplyFloats<false, NT> {};
template <int NT>
struct Multiply<Encoding::bf16, NT> : MultiplyFloats<true, NT> {};

}  // namespace foresay::kernels::cuda
