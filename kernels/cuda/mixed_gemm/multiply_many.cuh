// kernels/cuda/mixed_gemm/multiply_many.cuh: a block of a panel times the operands of up to 64 rows of the batch.
//
// The arithmetic of decode/multiply.cuh, number by number, with both operands in shared memory: weights are unpacked
// once for both tiles of a panel, then the eights of rows come one after the other, each operand loaded once. Sums of
// different columns and tiles do not meet, so their order is free; that within a sum is the one written out there.
//
// Registers: sums[2][NT][4], the operand A of a group (16) and what is in flight.
#pragma once

#include "kernels/cuda/decode/multiply.cuh"
#include "kernels/cuda/mixed_gemm/operands.cuh"

namespace foresay::kernels::cuda {

// The images of a warp's rows for the block at hand, in shared memory.
template <QuantType E>
class ImageRows {
public:
    using Image = OperandImage<E>;

    __device__ ImageRows(std::uint32_t images, int lane) : at_(images + lane * 16), lane_(lane) {}
    __device__ uint4 operand(int g, int nt, int plane = 0) const {
        return load_shared4(at_ + nt * Image::kBytes + (plane * Image::kGroups + g) * 512);
    }
    __device__ std::uint32_t sum(int nt, int word) const {
        return static_cast<std::uint32_t>(
            load_shared1(at_ - lane_ * 12 + nt * Image::kBytes + Image::kSumsAt + word * 128));
    }
    // What scales the sums of columns 2 q and 2 q + 1 back.
    __device__ float2 back(int nt) const {
        std::uint32_t a, b;
        load_shared2(a, b, at_ - lane_ * 16 + lane_ % 4 * 8 + nt * Image::kBytes + Image::kBackAt);
        return {__uint_as_float(a), __uint_as_float(b)};
    }

private:
    std::uint32_t at_;
    int lane_;
};

// run(address of the panel block in shared memory, operands, sums, lane) adds the block's products to `sums`.
template <QuantType E, int NT>
struct MultiplyMany;

// A group of 32 inputs: codes p[tile][half], scales s[tile][half].
template <QuantType E, int NT>
__device__ __forceinline__ void multiply_group_many(const std::uint32_t (&p)[2][2][4], const float (&s)[2][2],
                                                    const ImageRows<E>& in, int g, float (&sums)[2][NT][4]) {
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
        const uint4 x = in.operand(g, nt);
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            float d[4];
            multiply_group(d, p[t], x);
            add_scaled<false>(sums[t][nt], d, s[t][0], s[t][1]);
        }
    }
}

// Q4_0 and Q8_0.
template <QuantType E, int NT>
struct MultiplyManyScaled {
    static __device__ __forceinline__ void run(std::uint32_t block, const ImageRows<E>& in, float (&sums)[2][NT][4],
                                               int lane) {
        const uint4 scale = load_shared4(block + block_format(E).scale_begin + lane / 4 * 16);
        uint4 nibbles[2];
        if constexpr (E == QuantType::q4_0) {
            nibbles[0] = load_shared4(block + lane * 16);
            nibbles[1] = load_shared4(block + 512 + lane * 16);
        }
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
            const std::uint32_t sum = in.sum(nt, 0);
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                mma_k8(sums[t][nt], word_of(scale, 2 * t), word_of(scale, 2 * t + 1), sum, sums[t][nt]);
            }
        }
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            std::uint32_t p[2][2][4];
            float s[2][2];
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                if constexpr (E == QuantType::q4_0) {
                    unpack_nibbles(word_of(nibbles[t], 2 * g), p[t][0]);
                    unpack_nibbles(word_of(nibbles[t], 2 * g + 1), p[t][1]);
                } else {
                    const uint4 code = load_shared4(block + (t * 2 + g) * 512 + lane * 16);
#pragma unroll
                    for (int i = 0; i < 4; ++i) {  // (half, step)
                        const std::uint32_t word = word_of(code, i);
                        p[t][i / 2][2 * (i % 2)] = word & 0x00ff00ffu;
                        p[t][i / 2][2 * (i % 2) + 1] = __byte_perm(word, 0, 0x4341);
                    }
                }
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const float2 both = as_floats(word_of(scale, 2 * t + h));
                    s[t][h] = g == 0 ? both.x : both.y;
                }
            }
            multiply_group_many<E, NT>(p, s, in, g, sums);
        }
    }
};
template <int NT>
struct MultiplyMany<QuantType::q4_0, NT> : MultiplyManyScaled<QuantType::q4_0, NT> {};
template <int NT>
struct MultiplyMany<QuantType::q8_0, NT> : MultiplyManyScaled<QuantType::q8_0, NT> {};

template <QuantType E, int NT>
struct MultiplyManyK {
    static constexpr bool kFifth = E == QuantType::q5_k;
    static constexpr int kScales = kFifth ? 5120 : 4096;

    static __device__ __forceinline__ void run(std::uint32_t block, const ImageRows<E>& in, float (&sums)[2][NT][4],
                                               int lane) {
        const std::uint32_t row = lane / 4;
        float d[4];
        std::uint32_t nibbles[4], upper_bits[4];
        {
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
            for (int nt = 0; nt < NT; ++nt) {
                const std::uint32_t high = in.sum(nt, 0), low = in.sum(nt, 1);
#pragma unroll
                for (int t = 0; t < 2; ++t) {
                    const std::uint32_t m0 = minima[2 * t], m1 = minima[2 * t + 1];
                    const float zero[4] = {};
                    float product[4];
                    mma(product, m0, m1, m0, m1, high, low, zero);
                    add_scaled<false>(sums[t][nt], product, d_minimum[2 * t], d_minimum[2 * t + 1]);
                }
            }
        }
#pragma unroll
        for (int sub = 0; sub < 4; ++sub) {
            const std::uint32_t plane = block + sub * 1024;
            const uint4 code[2] = {load_shared4(plane + lane * 16), load_shared4(plane + 512 + lane * 16)};
            std::uint32_t fifth[2] = {};
            if (kFifth) load_shared2(fifth[0], fifth[1], block + 4096 + sub * 256 + lane * 8);
            std::uint32_t scale[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) scale[i] = k_scales(nibbles[i], upper_bits[i], sub);
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                std::uint32_t p[2][2][4];
                float s[2][2];
#pragma unroll
                for (int t = 0; t < 2; ++t) {
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        unpack_nibbles(word_of(code[t], 2 * g + h), p[t][h]);
                        if (kFifth) {
#pragma unroll
                            for (int step = 0; step < 2; ++step) {
                                const int slot = 4 * g + 2 * h + step, shift = (slot < 4 ? slot : slot + 4) - 4;
                                const std::uint32_t bits = shift < 0 ? fifth[t] << -shift : fifth[t] >> shift;
                                p[t][h][2 * step] |= bits & 0x00100010u;
                                p[t][h][2 * step + 1] |= bits & 0x01000100u;
                            }
                        }
                        const float2 scales = as_floats(scale[2 * t + h]);
                        s[t][h] = (g == 0 ? scales.x : scales.y) * d[2 * t + h];
                    }
                }
                multiply_group_many<E, NT>(p, s, in, 2 * sub + g, sums);
            }
        }
    }
};
template <int NT>
struct MultiplyMany<QuantType::q4_k, NT> : MultiplyManyK<QuantType::q4_k, NT> {};
template <int NT>
struct MultiplyMany<QuantType::q5_k, NT> : MultiplyManyK<QuantType::q5_k, NT> {};

template <int NT>
struct MultiplyMany<QuantType::q6_k, NT> {
    static __device__ __forceinline__ void run(std::uint32_t block, const ImageRows<QuantType::q6_k>& in,
                                               float (&sums)[2][NT][4], int lane) {
        float part[2][NT][4];
        {
            const std::uint32_t at = block + 6144 + lane / 4 * 16, q = lane % 4;
            const uint4 low = load_shared4(at + q / 2 * 128), high = load_shared4(at + (2 + q / 2) * 128);
            const std::uint32_t selector = q % 2 == 0 ? 0x4140u : 0x4342u;
            std::uint32_t a[2][4];
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                a[t][0] = signed_pair(word_of(low, 2 * t), selector);
                a[t][1] = signed_pair(word_of(low, 2 * t + 1), selector);
                a[t][2] = signed_pair(word_of(high, 2 * t), selector);
                a[t][3] = signed_pair(word_of(high, 2 * t + 1), selector);
            }
#pragma unroll
            for (int nt = 0; nt < NT; ++nt) {
                const std::uint32_t s0 = in.sum(nt, 0), s1 = in.sum(nt, 1), s2 = in.sum(nt, 2), s3 = in.sum(nt, 3);
#pragma unroll
                for (int t = 0; t < 2; ++t) {
                    const float zero[4] = {};
                    mma(part[t][nt], a[t][0], a[t][1], a[t][2], a[t][3], s0, s1, zero);
                    mma(part[t][nt], a[t][0], a[t][1], a[t][2], a[t][3], s2, s3, part[t][nt]);
                }
            }
        }
#pragma unroll
        for (int sub = 0; sub < 4; ++sub) {
            const std::uint32_t plane = block + sub * 1024;
            const uint4 scale_bits = load_shared4(block + 6144 + sub * 128 + lane / 4 * 16);
            uint4 code[2];
            std::uint32_t upper[2][2];
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                code[t] = load_shared4(plane + t * 512 + lane * 16);
                load_shared2(upper[t][0], upper[t][1], block + 4096 + sub * 512 + t * 256 + lane * 8);
            }
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                std::uint32_t p[2][2][4];
                float s[2][2][2];  // tile, step, half
#pragma unroll
                for (int t = 0; t < 2; ++t) {
#pragma unroll
                    for (int h = 0; h < 2; ++h) {
                        unpack_nibbles(word_of(code[t], 2 * g + h), p[t][h]);
#pragma unroll
                        for (int step = 0; step < 2; ++step) {
                            const int slot = 2 * h + step, shift = 2 * (slot % 2) + 8 * (slot / 2) - 4;
                            const std::uint32_t bits = shift < 0 ? upper[t][g] << -shift : upper[t][g] >> shift;
                            p[t][h][2 * step] |= bits & 0x00300030u;
                            p[t][h][2 * step + 1] |= bits & 0x03000300u;
                            s[t][step][h] = static_cast<float>(
                                static_cast<std::int8_t>(word_of(scale_bits, 2 * t + h) >> (8 * (2 * g + step))));
                        }
                    }
                }
#pragma unroll
                for (int nt = 0; nt < NT; ++nt) {
                    const uint4 x = in.operand(2 * sub + g, nt);
#pragma unroll
                    for (int t = 0; t < 2; ++t) {
#pragma unroll
                        for (int step = 0; step < 2; ++step) {
                            const float zero[4] = {};
                            float d[4];
                            mma(d, p[t][0][2 * step], p[t][1][2 * step], p[t][0][2 * step + 1], p[t][1][2 * step + 1],
                                step == 0 ? x.x : x.z, step == 0 ? x.y : x.w, zero);
                            add_scaled<false>(part[t][nt], d, s[t][step][0], s[t][step][1]);
                        }
                    }
                }
            }
        }
        std::uint32_t low, high;
        load_shared2(low, high, block + 6656 + lane / 4 * 8);
        const float2 d0 = as_floats(low), d1 = as_floats(high);
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
            add_scaled<false>(sums[0][nt], part[0][nt], d0.x, d0.y);
            add_scaled<false>(sums[1][nt], part[1][nt], d1.x, d1.y);
        }
    }
};

template <QuantType E, int NT>
struct MultiplyManyFloats {
    static __device__ __forceinline__ void run(std::uint32_t block, const ImageRows<E>& in, float (&sums)[2][NT][4],
                                               int lane) {
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            uint4 a[2][2];  // tile, step
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                a[t][0] = load_shared4(block + (t * 2 + g) * 1024 + lane * 16);
                a[t][1] = load_shared4(block + (t * 2 + g) * 1024 + 512 + lane * 16);
            }
#pragma unroll
            for (int nt = 0; nt < NT; ++nt) {
                const uint4 high = in.operand(g, nt, 0), low = in.operand(g, nt, 1);
#pragma unroll
                for (int t = 0; t < 2; ++t) {
                    float(&d)[4] = sums[t][nt];
                    const auto add = [&](const uint4& w, std::uint32_t b0, std::uint32_t b1) {
                        if constexpr (E == QuantType::bf16) {
                            mma_bf16(d, w.x, w.y, w.z, w.w, b0, b1, d);
                        } else {
                            mma(d, w.x, w.y, w.z, w.w, b0, b1, d);
                        }
                    };
                    add(a[t][0], low.x, low.y);
                    add(a[t][0], high.x, high.y);
                    add(a[t][1], low.z, low.w);
                    add(a[t][1], high.z, high.w);
                }
            }
        }
    }
};
template <int NT>
struct MultiplyMany<QuantType::f16, NT> : MultiplyManyFloats<QuantType::f16, NT> {};
template <int NT>
struct MultiplyMany<QuantType::bf16, NT> : MultiplyManyFloats<QuantType::bf16, NT> {};

}  // namespace foresay::kernels::cuda
