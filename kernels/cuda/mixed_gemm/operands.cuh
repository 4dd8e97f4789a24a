// kernels/cuda/mixed_gemm/operands.cuh: the activations of an op as operands B of its products, in global memory, made
// once for all CTAs that multiply with them.
//
// Layout:   an image for every block of K and eight rows of the batch: [block][eight][OperandImage<E>::kBytes]. An
//           image has, for lane 4 r + q of a warp (row r; of each 16 inputs the four from 4 q on),
//             [plane][group of 32 inputs][word][lane] 4 bytes   the words of ActivationOperand::operand(); those of a
//                                                               warp are 8 inputs x 8 rows, as wgmma reads them
//             [word][lane] 4 bytes                              sums of the inputs, as ActivationOperand::sum()
//             [16 inputs][row], [32 inputs][row] float          instead of these for packed rows: sums of as many
//             [row] float                                       what scales the slice's sums back
//           Rows past the batch are zeros. Squares of a slice's inputs, where there is a norm: [slice][row].
// Order:    where inputs of packed rows have one, the input of each place is gathered here, once for all CTAs. Squares
//           are of the inputs as the decode kernel adds them: as they come, or in parts of K as they are gathered.
// Bits:     those of ActivationOperand (kernels/cuda/decode/activations.cuh) and PackedOperand (packed.cuh): the same
//           slices, scales, rounding, and the same matrix instruction for the sums.
#pragma once

#include "kernels/cuda/decode/activations.cuh"
#include "kernels/cuda/weights/packed_format.h"

namespace foresay::kernels::cuda {

template <QuantType E>
struct OperandImage {
    using Form = ActivationForm<E>;
    static constexpr int kGroups = block_format(E).inputs / 32;
    static constexpr int kSumsAt = Form::planes * kGroups * 512;
    static constexpr int kGroupSumsAt = kSumsAt + kGroups * 2 * 32;  // of packed rows
    static constexpr int kBackAt = Form::packed ? kGroupSumsAt + kGroups * 32 : kSumsAt + Form::sum_words * 128;
    static constexpr int kBytes = kBackAt + 32;
    static_assert(kBytes % 16 == 0);
};

// Four inputs as float16 or bfloat16: the pairs c = 0, 1 and c = 2, 3, and for plain numbers what they leave
// (ActivationOperand::round).
template <QuantType E>
__device__ inline void round_inputs(float4 v, uint2 (&half)[ActivationForm<E>::planes]) {
    using Form = ActivationForm<E>;
    if constexpr (Form::bf16) {
        const __nv_bfloat162 lo = __floats2bfloat162_rn(v.x, v.y), hi = __floats2bfloat162_rn(v.z, v.w);
        const float2 a = __bfloat1622float2(lo), c = __bfloat1622float2(hi);
        half[0] = {as_bits(lo), as_bits(hi)};
        half[1] = {as_bits(__floats2bfloat162_rn(v.x - a.x, v.y - a.y)),
                   as_bits(__floats2bfloat162_rn(v.z - c.x, v.w - c.y))};
    } else {
        const __half2 lo = __floats2half2_rn(v.x, v.y), hi = __floats2half2_rn(v.z, v.w);
        if constexpr (Form::floats) {
            const float2 a = __half22float2(lo), c = __half22float2(hi);
            half[0] = {as_bits(lo), as_bits(hi)};
            half[1] = {as_bits(__floats2half2_rn(v.x - a.x, v.y - a.y)),
                       as_bits(__floats2half2_rn(v.z - c.x, v.w - c.y))};
        } else {
            half[0] = {as_bits(lo), as_bits(Form::quarters_lowered ? __hmul2(hi, __float2half2_rn(0.0625f)) : hi)};
        }
    }
}

// The sums of group g of a block, by multiplying with ones; a row's operand B serves as operand A
// (ActivationOperand::sum_up).
template <QuantType E, int N>
__device__ inline void sum_inputs(const uint4& x, int g, float (&sums)[N]) {
    using Form = ActivationForm<E>;
    constexpr std::uint32_t one = 0x3c003c00u;
    constexpr float kUpper = Form::quarters_lowered ? 16.0f : 1.0f;
    const auto sum = [&](std::uint32_t step0, std::uint32_t step1) {
        const float zero[4] = {};
        float d[4];
        mma(d, x.x, x.y, x.z, x.w, step0, step1, zero);
        return fmaf(d[2], kUpper, d[0]) * Form::sum_factor;
    };
    if constexpr (Form::sum_inputs == 32) {
        sums[g] = sum(one, one);
    } else {
        sums[2 * g] = sum(one, 0);
        sums[2 * g + 1] = sum(0, one);
    }
}

// Two sums as two pairs of float16 that add up to them.
__device__ inline void split_sums(float a, float b, std::uint32_t& high, std::uint32_t& low) {
    const __half2 h = __floats2half2_rn(a, b);
    const float2 f = __half22float2(h);
    high = as_bits(h);
    low = as_bits(__floats2half2_rn(a - f.x, b - f.y));
}

// A block's sums as the words of lane q of four (ActivationOperand::keep_sums).
template <QuantType E, int N>
__device__ inline void sum_words(const float (&s)[N], int q, std::uint32_t (&words)[ActivationForm<E>::sum_words]) {
    using Form = ActivationForm<E>;
    const auto chosen = [q](const float* of) {  // registers have no index
        const float low = q & 1 ? of[2] : of[0], high = q & 1 ? of[6] : of[4];
        return q & 2 ? high : low;
    };
    if constexpr (Form::sum_words == 1) {
        std::uint32_t high, low;
        split_sums(s[0], s[1], high, low);
        words[0] = q == 0 ? high : q == 1 ? low : 0;
    } else if constexpr (Form::sum_words == 2) {
        split_sums(chosen(s), chosen(s + 1), words[0], words[1]);
    } else {
        split_sums(chosen(s), chosen(s + 1), words[0], words[2]);
        split_sums(chosen(s + 8), chosen(s + 9), words[1], words[3]);
    }
}

// Word i of four; registers have no index, so `i` must be a constant after unrolling.
__device__ inline std::uint32_t operand_word(const uint4& v, int i) {
    return i == 0 ? v.x : i == 1 ? v.y : i == 2 ? v.z : v.w;
}

// Blocks of a part of K.
struct PartBlocks {
    int first, count;
    __device__ PartBlocks(const GemvOp& op, int part)
        : first(part * op.blocks_each + min(part, op.blocks_more)),
          count(op.blocks_each + (part < op.blocks_more ? 1 : 0)) {}
};

struct OperandCall {
    GemvOp op;                    // with its parts
    const float* norm = nullptr;  // [inputs]; null: none
    const std::uint8_t* panels = nullptr;
    std::int32_t rows = 0, eights = 0;  // of the batch; images per block
    std::uint8_t* operands = nullptr;
    float* squares = nullptr;
};

// Warps of a CTA. Of packed rows one: inputs that have an order come in pieces of 32 bytes, of which a multiprocessor
// takes about two a clock, so its warps are better on several.
constexpr int operand_warps(QuantType e) { return e == QuantType::packed ? 1 : 4; }

// Which input stands at each place, if inputs of the matrix have an order. Weights, so nothing has to be awaited.
template <QuantType E>
__device__ inline const std::uint16_t* order_of(const OperandCall& c) {
    if constexpr (E == QuantType::packed) {
        const std::uint32_t panels_at =
            __ldg(reinterpret_cast<const std::uint32_t*>(c.panels + offsetof(PackedHeader, panels_at)));
        if (panels_at > sizeof(PackedHeader)) return reinterpret_cast<const std::uint16_t*>(c.panels + kOrderAt);
    }
    return nullptr;
}

// The sum of squares of a row's slice, in the tree of sum_over_lanes().
template <int N>
__device__ inline float squares_of(const float4 (&x)[N]) {
    float squares = 0.0f;
#pragma unroll
    for (int v = 0; v < N; ++v)
        squares += fmaf(x[v].x, x[v].x, x[v].y * x[v].y) + fmaf(x[v].z, x[v].z, x[v].w * x[v].w);
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) squares += __shfl_xor_sync(~0u, squares, offset);
    return squares;
}

// A warp per slice of eight rows.
template <QuantType E>
__global__ void __launch_bounds__(32 * operand_warps(E)) make_operands(const __grid_constant__ OperandCall c) {
    using Form = ActivationForm<E>;
    using Image = OperandImage<E>;
    constexpr int kWarps = gemv_warps(E), kInputs = block_format(E).inputs, kVectors = Form::groups / 4;
    constexpr int kRows = 8;
    __shared__ uint4 passage[operand_warps(E)][Form::planes * Form::groups * 32];
    allow_successor();
    const auto lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const int slice = static_cast<int>(blockIdx.y) * operand_warps(E) + warp;
    if (slice >= c.op.split * kWarps) return;
    const int part = slice / kWarps, w = slice - part * kWarps;
    const PartBlocks blocks(c.op, part);
    const int eight = static_cast<int>(blockIdx.x), here = min(c.rows - 8 * eight, kRows);
    // Where this lane's fours of the slice begin.
    int at[kVectors];
    bool exists[kVectors];
    float4 weight[kVectors] = {};
    const std::uint16_t* const order = order_of<E>(c);
    ushort4 place[kVectors] = {};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
        const int in_slice = v * 128 + lane * 4, block = in_slice / kInputs * kWarps + w;
        at[v] = (blocks.first + block) * kInputs + in_slice % kInputs;
        exists[v] = block < blocks.count && at[v] < c.op.inputs;
        if (order != nullptr && exists[v]) place[v] = __ldg(reinterpret_cast<const ushort4*>(order + at[v]));
        if (c.norm == nullptr || !exists[v]) continue;
        if (order == nullptr) {
            weight[v] = *reinterpret_cast<const float4*>(c.norm + at[v]);
        } else {
            weight[v] = {c.norm[place[v].x], c.norm[place[v].y], c.norm[place[v].z], c.norm[place[v].w]};
        }
    }
    await_predecessors();
    float4 x[kRows][kVectors];
    const auto load = [&](bool gathers) {
#pragma unroll
        for (int b = 0; b < kRows; ++b) {
            const int t = 8 * eight + b;
            const std::int64_t row = b < here ? c.op.row != nullptr ? __ldcg(c.op.row + t) : t : 0;
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                if (gathers) {
                    const float* const from = c.op.x + row * c.op.inputs;
                    x[b][v] = b < here && exists[v] ? float4{__ldcg(from + place[v].x), __ldcg(from + place[v].y),
                                                             __ldcg(from + place[v].z), __ldcg(from + place[v].w)}
                                                    : float4{};
                } else {
                    x[b][v] = b < here && exists[v]
                                  ? __ldcg(reinterpret_cast<const float4*>(c.op.x + row * c.op.inputs + at[v]))
                                  : float4{};
                }
            }
        }
    };
    const auto weigh = [&](float4(&of)[kVectors]) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
            const float4 a = of[v], k = weight[v];
            of[v] = {a.x * k.x, a.y * k.y, a.z * k.z, a.w * k.w};
        }
    };
    const bool squares_as_they_come = order != nullptr && c.norm != nullptr && c.op.split == 1;
    load(order != nullptr && !squares_as_they_come);
    if (c.norm != nullptr) {
        // Squares before the norm's weights.
#pragma unroll
        for (int b = 0; b < kRows; ++b) {
            const float squares = squares_of(x[b]);
            if (lane == 0 && b < here) c.squares[slice * 8 * c.eights + 8 * eight + b] = squares;
            if (!squares_as_they_come) weigh(x[b]);
        }
        if (squares_as_they_come) {
            load(true);
#pragma unroll
            for (int b = 0; b < kRows; ++b) weigh(x[b]);
        }
    }
    // Scale, round, and pass to the lanes that multiply.
    float back = 0.0f;  // of row `lane`
    auto* const to = reinterpret_cast<std::uint8_t*>(passage[warp]) + lane / 8 * 512 + lane % 4 * 16 + lane / 4 % 2 * 8;
#pragma unroll
    for (int b = 0; b < kRows; ++b) {
        float most = 0.0f;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) most = larger_magnitude(most, x[b][v]);
        const RowScale<false> row(__reduce_max_sync(~0u, __float_as_uint(most)));
        const float scale = row.up();
        if (lane == b) back = row.back() * Form::code_scale;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
            const float4 a = x[b][v];
            uint2 half[Form::planes];
            round_inputs<E>({a.x * scale, a.y * scale, a.z * scale, a.w * scale}, half);
#pragma unroll
            for (int plane = 0; plane < Form::planes; ++plane) {
                *reinterpret_cast<uint2*>(to + (plane * Form::groups + v * 4) * 512 + b * 64) = half[plane];
            }
        }
    }
    __syncwarp();
    // Block by block to memory, with the sums of each.
#pragma unroll
    for (int j = 0; j < Form::blocks; ++j) {
        const int block = j * kWarps + w;
        if (block >= blocks.count) break;
        std::uint8_t* const image =
            c.operands + (static_cast<std::int64_t>(blocks.first + block) * c.eights + eight) * Image::kBytes;
        float sums[kInputs / Form::sum_inputs];
#pragma unroll
        for (int g = 0; g < Image::kGroups; ++g) {
#pragma unroll
            for (int plane = 0; plane < Form::planes; ++plane) {
                const uint4 v = passage[warp][(plane * Form::groups + j * Image::kGroups + g) * 32 + lane];
                std::uint8_t* const group = image + (plane * Image::kGroups + g) * 512;
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    *reinterpret_cast<std::uint32_t*>(group + i * 128 + lane * 4) = operand_word(v, i);
                }
                if constexpr (!Form::floats) sum_inputs<E>(v, g, sums);
            }
        }
        if constexpr (Form::packed) {
            if (lane % 4 == 0) {  // that has the sums of row lane / 4
                auto* const of_row = reinterpret_cast<float*>(image + Image::kSumsAt + lane);
#pragma unroll
                for (int u = 0; u < 2 * Image::kGroups; ++u) of_row[u * 8] = sums[u];
#pragma unroll
                for (int g = 0; g < Image::kGroups; ++g) {
                    of_row[(2 * Image::kGroups + g) * 8] = sums[2 * g] + sums[2 * g + 1];
                }
            }
        } else if constexpr (!Form::floats) {
            std::uint32_t words[Form::sum_words];
            sum_words<E>(sums, lane % 4, words);
#pragma unroll
            for (int i = 0; i < Form::sum_words; ++i) {
                *reinterpret_cast<std::uint32_t*>(image + Image::kSumsAt + i * 128 + lane * 4) = words[i];
            }
        }
        if (lane < kRows) *reinterpret_cast<float*>(image + Image::kBackAt + lane * 4) = back;
    }
}

}  // namespace foresay::kernels::cuda
