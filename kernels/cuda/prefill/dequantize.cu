// Panels to plain rows.
//
// A warp takes 32 rows x 64 inputs of a panel at a time. Each lane loads the codes of its place in the mma fragments
// with 16-byte loads, because that is how panels are laid out (kernels/cuda/weights/panel_format.h), computes the
// weights in float16, and trades halves with its neighbour, so that each lane writes 16 contiguous bytes of a row.
// Nothing is shared between warps.
//
//   panel block --16-byte loads--> codes and scales in registers   (constructor of Dequantize<E>, all loads at once)
//   codes --> float16 fours of the lane's rows                      (Dequantize<E>::get)
//   fours --shuffle with lane ^ 1--> eights --> one 16-byte store    (dequantize_to_f16)
//
// To add a quantisation type: a specialisation of Dequantize, and a line in most_of_scale() if its codes are scaled.
//
// Exactness: codes become float16 by integer instructions; scale times code (minus minimum) is computed in float32 for
//           K-quants and rounded once. The weights are 2^shift times the file's (dequantize_shift); `times` in the
//           constructors below is 2^shift.

#include "kernels/cuda/prefill/dequantize.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/cuda/device/half_pairs.cuh"
#include "kernels/cuda/prefill/dequantize_packed.h"
#include "kernels/cuda/weights/panel_format.h"
#include "kernels/quant/visit.h"

namespace foresay::kernels::cuda {
namespace {

constexpr int kWarps = 8;  // of a CTA; each takes 32 rows x 64 inputs

__device__ std::uint32_t word(const uint4& v, int i) { return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w; }
__device__ uint4 read16(const std::uint8_t* from) { return __ldcs(reinterpret_cast<const uint4*>(from)); }

// Codes in the low bits of two halves, below 1,024, minus `middle`, as float16. Exact: the bits 0x6400 | u are the
// number 1024 + u, and one subtraction takes off both.
__device__ __half2 codes(std::uint32_t bits, float middle) {
    return __hsub2(as_halves(bits | 0x64006400u), __float2half2_rn(1024.0f + middle));
}
// Pair (c, c + 1) = (2 p, 2 p + 1) of step s in a word of nibbles; t, h, r, g, s, q, c as in panel_format.h.
__device__ std::uint32_t nibbles(std::uint32_t w, int s, int p) { return w >> (8 * s + 4 * p) & 0x000f000fu; }

// A lane's weights of 32 rows x 64 inputs of a panel block: get(t, h, g, s) are inputs 32 g + 16 s + 4 (lane % 4) +
// {0..3} of row 16 t + 8 h + lane / 4, as four float16 numbers. `sub` counts 64 inputs within a block: 0 for blocks of
// 64, 0..3 for K-quants. The constructor issues all loads.
template <QuantType E>
struct Dequantize;

// One float16 scale per 32 inputs: q4_0, q8_0. A scale times 2^shift is still a float16 number, short of subnormals, so
// the product with the code is the only rounding.
struct DequantizeScaled {
    std::uint32_t scales[4];  // (t, h); the halves of a word are g
    float factor;
    // 16 bytes per r = lane / 4, so four lanes load the same ones.
    __device__ void load_scales(const std::uint8_t* at, int lane, float times) {
        const uint4 v = read16(at + lane / 4 * 16);
        scales[0] = v.x;
        scales[1] = v.y;
        scales[2] = v.z;
        scales[3] = v.w;
        factor = times;
    }
    __device__ __half2 scale(int t, int h, int g) const {
        const float2 pair = as_floats(scales[2 * t + h]);
        return __float2half2_rn((g == 0 ? pair.x : pair.y) * factor);
    }
};

// Q4_0: code - 8, exact, times the scale.
template <>
struct Dequantize<QuantType::q4_0> : DequantizeScaled {
    uint4 code[2];  // t; word (g, h) has the 8 codes (s, c)
    __device__ Dequantize(const std::uint8_t* block, int /*sub*/, int lane, float times) {
        for (int t = 0; t < 2; ++t) code[t] = read16(block + t * 512 + lane * 16);
        load_scales(block + offsetof(PanelQ4_0, d), lane, times);
    }
    __device__ uint2 get(int t, int h, int g, int s) const {
        const std::uint32_t w = word(code[t], 2 * g + h);
        const __half2 d = scale(t, h, g);
        return {as_bits(__hmul2(codes(nibbles(w, s, 0), 8.0f), d)), as_bits(__hmul2(codes(nibbles(w, s, 1), 8.0f), d))};
    }
};

// Q8_0: codes are stored plus 128, so that they are unsigned.
template <>
struct Dequantize<QuantType::q8_0> : DequantizeScaled {
    uint4 code[2][2];  // t, g; word (h, s) has four bytes, c = 0, 2, 1, 3
    __device__ Dequantize(const std::uint8_t* block, int /*sub*/, int lane, float times) {
        for (int i = 0; i < 4; ++i) code[i / 2][i % 2] = read16(block + i * 512 + lane * 16);
        load_scales(block + offsetof(PanelQ8_0, d), lane, times);
    }
    __device__ uint2 get(int t, int h, int g, int s) const {
        const std::uint32_t w = word(code[t][g], 2 * h + s);
        const __half2 d = scale(t, h, g);
        return {as_bits(__hmul2(codes(w & 0x00ff00ffu, 128.0f), d)),
                as_bits(__hmul2(codes(w >> 8 & 0x00ff00ffu, 128.0f), d))};
    }
};

// Four codes times a float32 scale minus a minimum: one fmaf and one rounding to float16 per weight.
__device__ uint2 scaled(__half2 first, __half2 second, float scale, float minimum) {
    const float2 a = __half22float2(first), b = __half22float2(second);
    return {as_bits(__floats2half2_rn(fmaf(a.x, scale, -minimum), fmaf(a.y, scale, -minimum))),
            as_bits(__floats2half2_rn(fmaf(b.x, scale, -minimum), fmaf(b.y, scale, -minimum)))};
}

// Q4_K and Q5_K: scale and minimum of each group are computed once per 64 inputs.
template <bool Fifth>
struct DequantizeK {
    static constexpr int kScales = Fifth ? offsetof(PanelQ5_K, d) : offsetof(PanelQ4_K, d);
    static constexpr int kScaleCodes = Fifth ? offsetof(PanelQ5_K, scales) : offsetof(PanelQ4_K, scales);
    uint4 code[2];                     // t; word (g, h)
    std::uint32_t fifth[2] = {};       // t; bits as fifth_place() has them
    float scale[4][2], minimum[4][2];  // (t, h), g
    __device__ DequantizeK(const std::uint8_t* block, int sub, int lane, float times) {
        for (int t = 0; t < 2; ++t) code[t] = read16(block + sub * 1024 + t * 512 + lane * 16);
        if (Fifth) {
            const uint2 bits =
                __ldcs(reinterpret_cast<const uint2*>(block + offsetof(PanelQ5_K, fifth) + sub * 256 + lane * 8));
            fifth[0] = bits.x;
            fifth[1] = bits.y;
        }
        // The lane's four rows (t, h): d and dmin, then three words of 6-bit scales and minima each.
        const int r = lane / 4;
        const uint4 d = read16(block + kScales + r * 16);
        uint4 packed[3];
        for (int i = 0; i < 3; ++i) packed[i] = read16(block + kScaleCodes + r * 48 + i * 16);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            const float2 both = as_floats(word(d, i));
            std::uint32_t w[3];
#pragma unroll
            for (int j = 0; j < 3; ++j) w[j] = word(packed[(3 * i + j) / 4], (3 * i + j) % 4);
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                // Scale and minimum of the row for each of the two groups of these 64 inputs, with the shift in them.
                const ScaleCodePlace place(2 * sub + g);
                const std::uint32_t s = (w[0] >> place.nibble & 15u) | (w[2] >> place.scale_upper & 3u) << 4;
                const std::uint32_t m = (w[1] >> place.nibble & 15u) | (w[2] >> place.minimum_upper & 3u) << 4;
                scale[i][g] = both.x * static_cast<float>(s) * times;
                minimum[i][g] = both.y * static_cast<float>(m) * times;
            }
        }
    }
    __device__ uint2 get(int t, int h, int g, int s) const {
        const std::uint32_t w = word(code[t], 2 * g + h);
        std::uint32_t first = nibbles(w, s, 0), second = nibbles(w, s, 1);
        if (Fifth) {
            const int slot = 4 * g + 2 * h + s, e = slot < 4 ? slot : slot + 4;  // fifth_place()
            first |= (fifth[t] >> e & 0x00010001u) << 4;
            second |= (fifth[t] >> (e + 4) & 0x00010001u) << 4;
        }
        return scaled(codes(first, 0.0f), codes(second, 0.0f), scale[2 * t + h][g], minimum[2 * t + h][g]);
    }
};
template <>
struct Dequantize<QuantType::q4_k> : DequantizeK<false> {
    using DequantizeK::DequantizeK;
};
template <>
struct Dequantize<QuantType::q5_k> : DequantizeK<true> {
    using DequantizeK::DequantizeK;
};

// MXFP4: bits of a code become those of a float16 (FloatCodePlace), 2^-14 times the number. Twice the scale comes from
// the exponent without special cases, hence 2^13.
template <>
struct Dequantize<QuantType::mxfp4> {
    uint4 code[2];    // t; word (g, h)
    uint2 exponents;  // t; bytes (h, g)
    float factor;
    __device__ Dequantize(const std::uint8_t* block, int /*sub*/, int lane, float times) : factor(times) {
        for (int t = 0; t < 2; ++t) code[t] = read16(block + t * 512 + lane * 16);
        exponents = __ldcs(reinterpret_cast<const uint2*>(block + offsetof(PanelMXFP4, exponents) + lane / 4 * 8));
    }
    __device__ uint2 get(int t, int h, int g, int s) const {
        const std::uint32_t w = word(code[t], 2 * g + h), bytes = t == 0 ? exponents.x : exponents.y;
        const float scale = __uint_as_float(((bytes >> (8 * (2 * h + g)) & 255u) + 1u) << 23) * factor * 8192.0f;
        std::uint32_t p[4];
        unpack_float_codes(w, p);
        return scaled(as_halves(p[2 * s]), as_halves(p[2 * s + 1]), scale, 0.0f);
    }
};

// Q6_K: upper two bits from their own plane, an int8 scale per 16 inputs.
template <>
struct Dequantize<QuantType::q6_k> {
    uint4 code[2];
    uint2 upper[2];  // t; g
    uint4 scales;    // word (t, h), byte (g, s)
    float d[4];      // (t, h)
    __device__ Dequantize(const std::uint8_t* block, int sub, int lane, float times) {
        for (int t = 0; t < 2; ++t) {
            code[t] = read16(block + sub * 1024 + t * 512 + lane * 16);
            const std::uint8_t* bits = block + offsetof(PanelQ6_K, upper) + sub * 512 + t * 256 + lane * 8;
            upper[t] = __ldcs(reinterpret_cast<const uint2*>(bits));
        }
        // Int8 scales of the four rows and four halves of groups, one load; d of the rows, another.
        scales = read16(block + offsetof(PanelQ6_K, scales) + sub * 128 + lane / 4 * 16);
        const uint2 bits = __ldcs(reinterpret_cast<const uint2*>(block + offsetof(PanelQ6_K, d) + lane / 4 * 8));
        const float2 low = as_floats(bits.x), high = as_floats(bits.y);
        d[0] = low.x * times;
        d[1] = low.y * times;
        d[2] = high.x * times;
        d[3] = high.y * times;
    }
    __device__ uint2 get(int t, int h, int g, int s) const {
        const std::uint32_t w = word(code[t], 2 * g + h), up = g == 0 ? upper[t].x : upper[t].y;
        const int slot = 2 * h + s, e = 2 * (slot % 2) + 8 * (slot / 2);  // upper_place()
        const std::uint32_t first = nibbles(w, s, 0) | (up >> e & 0x00030003u) << 4;
        const std::uint32_t second = nibbles(w, s, 1) | (up >> (e + 4) & 0x00030003u) << 4;
        const auto code8 = static_cast<std::int8_t>(word(scales, 2 * t + h) >> (8 * (2 * g + s)) & 0xffu);
        return scaled(codes(first, 32.0f), codes(second, 32.0f), d[2 * t + h] * static_cast<float>(code8), 0.0f);
    }
};

// Float16 passes through; its shift is 0. Bfloat16 is scaled by the shift, which brings its largest weight into the
// range of float16, and rounded.
template <bool Bf16>
struct DequantizeFloats {
    uint4 value[2][2][2];  // t, g, s; words (c / 2, h)
    float factor;
    __device__ DequantizeFloats(const std::uint8_t* block, int /*sub*/, int lane, float times) : factor(times) {
#pragma unroll
        for (int i = 0; i < 8; ++i) value[i / 4][i / 2 % 2][i % 2] = read16(block + i * 512 + lane * 16);
    }
    __device__ std::uint32_t half(std::uint32_t bits) const {
        if (!Bf16) return bits;
        const float2 pair = __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(&bits));
        return as_bits(__floats2half2_rn(pair.x * factor, pair.y * factor));
    }
    __device__ uint2 get(int t, int h, int g, int s) const {
        const uint4& v = value[t][g][s];
        return {half(word(v, h)), half(word(v, 2 + h))};
    }
};
template <>
struct Dequantize<QuantType::f16> : DequantizeFloats<false> {
    using DequantizeFloats::DequantizeFloats;
};
template <>
struct Dequantize<QuantType::bf16> : DequantizeFloats<true> {
    using DequantizeFloats::DequantizeFloats;
};

// One warp per 64 inputs of a panel: 128 bytes of each of its 32 rows. Grid: x: kWarps times 64 inputs; y: panels.
template <QuantType E>
__global__ void __launch_bounds__(32 * kWarps)
    dequantize_to_f16(const std::uint8_t* panels, std::int32_t blocks, float times, __half* out, std::int64_t stride) {
    constexpr BlockFormat format = block_format(E);
    constexpr int kSubs = format.inputs / 64;
    const int lane = threadIdx.x % 32;
    const std::int32_t unit =
        static_cast<std::int32_t>(blockIdx.x) * kWarps + static_cast<std::int32_t>(threadIdx.x) / 32;
    if (unit >= blocks * kSubs) return;
    const std::int64_t panel = blockIdx.y;
    const std::uint8_t* block = panels + (panel * blocks + unit / kSubs) * format.bytes;
    const Dequantize<E> from(block, unit % kSubs, lane, times);
    // A lane has four inputs of step 0 and four of step 1, 16 inputs apart. Neighbouring lanes trade one step for the
    // other, so that each has eight inputs that follow one another: even lanes those of step 0, odd lanes of step 1.
    const bool odd = lane % 2 != 0;
    __half* to = out + (panel * kPanelRows + lane / 4) * stride + static_cast<std::int64_t>(unit) * 64 +
                 (odd ? 16 + 4 * (lane % 4 - 1) : 4 * (lane % 4));
#pragma unroll
    for (int t = 0; t < 2; ++t) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int g = 0; g < 2; ++g) {
                const uint2 first = from.get(t, h, g, 0), second = from.get(t, h, g, 1);
                const uint2 away = odd ? first : second;
                const uint2 got = {__shfl_xor_sync(~0u, away.x, 1), __shfl_xor_sync(~0u, away.y, 1)};
                const uint4 eight =
                    odd ? uint4{got.x, got.y, second.x, second.y} : uint4{first.x, first.y, got.x, got.y};
                *reinterpret_cast<uint4*>(to + (16 * t + 8 * h) * stride + 32 * g) = eight;
            }
        }
    }
}

// Float32 panels: a copy into rows. Grid: (blocks of a panel, panels).
__global__ void __launch_bounds__(32 * kWarps)
    copy_f32(const std::uint8_t* panels, std::int32_t blocks, float* out, std::int64_t stride) {
    constexpr BlockFormat format = block_format(QuantType::f32);
    const std::int64_t panel = blockIdx.y, block = blockIdx.x;
    const auto* from = reinterpret_cast<const float4*>(panels + (panel * blocks + block) * format.bytes);
    for (int i = static_cast<int>(threadIdx.x); i < kPanelRows * 16; i += 32 * kWarps) {
        *reinterpret_cast<float4*>(out + (panel * kPanelRows + i / 16) * stride + block * 64 + i % 16 * 4) =
            __ldcs(from + i);
    }
}

// The largest magnitude among the 16-bit numbers of bytes [begin, end) of every panel block, as the bits of a float:
// bits of positive floats compare like integers, so atomicMax does. `found` must be 0 before. The result is a maximum,
// so the order of the threads does not matter.
__global__ void largest(const std::uint8_t* panels, std::int64_t blocks, std::int32_t bytes, std::int32_t begin,
                        std::int32_t end, bool bf16, std::uint32_t* found) {
    const std::int64_t each = (end - begin) / 2, step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    float most = 0.0f;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < blocks * each;
         i += step) {
        const auto bits =
            *reinterpret_cast<const std::uint16_t*>(panels + i / each * bytes + begin + 2 * static_cast<int>(i % each));
        const float value = bf16 ? __uint_as_float(static_cast<std::uint32_t>(bits) << 16)
                                 : __half2float(*reinterpret_cast<const __half*>(&bits));
        if (fabsf(value) <= 3.4e38f) most = fmaxf(most, fabsf(value));  // what is not finite stays so anyway
    }
    const std::uint32_t of_warp = __reduce_max_sync(~0u, __float_as_uint(most));
    if (threadIdx.x % 32 == 0) atomicMax(found, of_warp);
}

// The largest byte of bytes [begin, end) of every panel block, likewise.
__global__ void largest_byte(const std::uint8_t* panels, std::int64_t blocks, std::int32_t bytes, std::int32_t begin,
                             std::int32_t end, std::uint32_t* found) {
    const std::int64_t each = end - begin, step = static_cast<std::int64_t>(gridDim.x) * blockDim.x;
    std::uint32_t most = 0;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < blocks * each;
         i += step) {
        most = max(most, static_cast<std::uint32_t>(panels[i / each * bytes + begin + i % each]));
    }
    const std::uint32_t of_warp = __reduce_max_sync(~0u, most);
    if (threadIdx.x % 32 == 0) atomicMax(found, of_warp);
}

// An upper bound of |weight| / |scale|: the magnitude of the largest code, times that of the largest 6-bit or int8
// scale of K-quants. Q4_K and Q5_K: 63 * (15 + 1) and 63 * (31 + 1), where the 1 is the minimum (`largest` looks at
// dmin, too).
float most_of_scale(QuantType quant_type) {
    switch (quant_type) {
        case QuantType::q4_0:
            return 8.0f;
        case QuantType::q8_0:
            return 128.0f;
        case QuantType::q4_k:
            return 63.0f * 16.0f;
        case QuantType::q5_k:
            return 63.0f * 32.0f;
        case QuantType::q6_k:
            return 128.0f * 32.0f;
        case QuantType::mxfp4:
            return 6.0f;
        default:
            return 1.0f;
    }
}

// `count` panels from `from` on.
template <QuantType E>
void dequantize_as(cudaStream_t stream, const Panels::Part& part, const std::uint8_t* from, std::int32_t count,
                   int shift, void* out, std::int64_t stride) {
    const int units = part.blocks * (block_format(E).inputs / 64);
    const dim3 grid(static_cast<unsigned>((units + kWarps - 1) / kWarps), static_cast<unsigned>(count));
    dequantize_to_f16<E><<<grid, 32 * kWarps, 0, stream>>>(from, part.blocks, std::ldexp(1.0f, shift),
                                                           static_cast<__half*>(out), stride);
}

}  // namespace

// Runs when a model is loaded: one pass over the scales (or, for bfloat16, all weights), then waits.
int dequantize_shift(const Panels::Part& part) {
    if (part.quant_type == QuantType::f32 || part.quant_type == QuantType::f16) return 0;  // copied as they are
    const BlockFormat format = block_format(part.quant_type);
    const DeviceBuffer<std::uint32_t> found(1);
    cuda_check(cudaMemset(found.data(), 0, sizeof(std::uint32_t)), "cannot clear memory");
    const std::int64_t blocks = static_cast<std::int64_t>(part.panels) * part.blocks;
    const bool exponents = part.quant_type == QuantType::mxfp4;
    if (part.quant_type == QuantType::packed) {
        launch_largest_packed(part, found.data());
    } else if (exponents) {
        largest_byte<<<1024, 256>>>(part.data.data(), blocks, format.bytes, format.scale_begin, format.scale_end,
                                    found.data());
    } else {
        largest<<<1024, 256>>>(part.data.data(), blocks, format.bytes, format.scale_begin, format.scale_end,
                               part.quant_type == QuantType::bf16, found.data());
    }
    launched("largest");
    std::uint32_t bits = 0;
    cuda_check(cudaMemcpy(&bits, found.data(), sizeof(bits), cudaMemcpyDeviceToHost), "cannot read back");
    const float most = exponents ? std::ldexp(1.0f, static_cast<int>(bits) - 127) : f32_from_bits(bits);
    if (most == 0.0f) return 0;
    int exponent = 0;
    std::frexp(static_cast<double>(most) * static_cast<double>(most_of_scale(part.quant_type)),
               &exponent);                        // weights are below 2^exponent
    return std::clamp(14 - exponent, -120, 120);  // 2^shift and its inverse are finite floats
}

void launch_dequantize(cudaStream_t stream, const Panels::Part& part, std::int32_t first, std::int32_t count, int shift,
                       void* out, std::int64_t stride) {
    if (part.quant_type == QuantType::packed) {
        return launch_dequantize_packed(stream, part, first, count, shift, out, stride);
    }
    const std::uint8_t* from = part.data.data() + static_cast<std::int64_t>(first) * part.blocks *
                                                      static_cast<std::int64_t>(block_format(part.quant_type).bytes);
    if (part.quant_type == QuantType::f32) {
        const dim3 grid(static_cast<unsigned>(part.blocks), static_cast<unsigned>(count));
        copy_f32<<<grid, 32 * kWarps, 0, stream>>>(from, part.blocks, static_cast<float*>(out), stride);
    } else {
        visit_quant_type(part.quant_type, [&](auto q) {
            constexpr QuantType kType = decltype(q)::kQuantType;
            if constexpr (kType != QuantType::f32) dequantize_as<kType>(stream, part, from, count, shift, out, stride);
        });
    }
    launched("unpack");
}

}  // namespace foresay::kernels::cuda
