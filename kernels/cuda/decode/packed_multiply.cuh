// kernels/cuda/decode/packed_multiply.cuh: the product of a block of packed rows and up to 8 rows of activations, for
// the decode kernel (packed.cuh) and for experts (kernels/cuda/experts/products_packed.cu).
#pragma once

#include "kernels/cuda/decode/multiply.cuh"
#include "kernels/cuda/decode/packed_header.cuh"
#include "kernels/cuda/weights/packed_codes.cuh"

namespace foresay::kernels::cuda {

// The sums of the two 16 inputs of a group, by an mma: lane 4 r has those of row r. Pairs c = 2, 3 are lowered.
__device__ __forceinline__ float2 sums_of_sixteens(const uint4& x) {
    constexpr std::uint32_t one = 0x3c003c00u;
    const float zero[4] = {};
    float first[4], second[4];
    mma(first, x.x, x.y, x.z, x.w, one, 0, zero);
    mma(second, x.x, x.y, x.z, x.w, 0, one, zero);
    return {fmaf(first[2], 16.0f, first[0]), fmaf(second[2], 16.0f, second[0])};
}

// What the products of a matrix have in common.
struct PackedMatrix {
    SharedHeader header;
    PanelScales scales;
    bool minimum_is_zero;
    float factor;  // of the lane's packed rows
};

// sums += m times the sum of the activations.
template <bool kOneRow>
__device__ __forceinline__ void add_minimum(float (&sums)[4], float m0, float m1, float2 of) {
    sums[0] = fmaf(m0, of.x, sums[0]);
    if (!kOneRow) sums[1] = fmaf(m0, of.y, sums[1]);
    sums[2] = fmaf(m1, of.x, sums[2]);
    if (!kOneRow) sums[3] = fmaf(m1, of.y, sums[3]);
}
// What products begin with: minus the middle of the codes, times the sum of the activations.
template <CodeKind kKind, bool kOneRow>
__device__ __forceinline__ void begin_with_middle(float (&begin)[4], float zero, float2 of) {
    if (kKind == CodeKind::halves2 || kKind == CodeKind::e4m3) {  // those have none
        begin[0] = begin[1] = begin[2] = begin[3] = 0.0f;
        return;
    }
    const float middle = (is_table(kKind) ? -128.0f : -zero) / kCodeUnit<kKind>;
    begin[0] = begin[2] = middle * of.x;
    begin[1] = begin[3] = kOneRow ? 0.0f : middle * of.y;  // not read of one row
}

// Where scales change every 16 inputs. No branch, so that the instructions of both tiles mix.
template <CodeKind kKind, bool kOneRow, PanelScales kScales, class Operand>
__device__ __forceinline__ void multiply_block_halves(const SharedBlock& block, const PackedMatrix& matrix,
                                                      const Operand& in, int first, int lane, float (&sums)[2][1][4]) {
    const float unit = kCodeUnit<kKind> * matrix.factor;
    uint4 table = {};
    if constexpr (is_table(kKind)) table = matrix.header.table();
#pragma unroll
    for (int t = 0; t < 2; ++t) {
        float s[2][4], m[2][4];
        load_halves_as<kScales>(block, code_bits(kKind) * 256, t, lane, s, m);
#pragma unroll
        for (int g = 0; g < 2; ++g) {
            std::uint32_t p[2][4];
            load_pairs<kKind>(block, t, g, lane, table, p);
            const uint4 x = in.operand(first + g);
            const float4 sixteens = in.sums(first + g);
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                const int u = 2 * g + step;
                const float2 of = step == 0 ? float2{sixteens.x, sixteens.z} : float2{sixteens.y, sixteens.w};
                float d[4], begin[4];
                begin_with_middle<kKind, kOneRow>(begin, 0.0f, of);
                mma(d, p[0][2 * step], p[1][2 * step], p[0][2 * step + 1], p[1][2 * step + 1], step == 0 ? x.x : x.z,
                    step == 0 ? x.y : x.w, begin);
                add_scaled<kOneRow>(sums[t][0], d, s[0][u] * unit, s[1][u] * unit);
                if constexpr (!is_table(kKind)) {
                    add_minimum<kOneRow>(sums[t][0], m[0][u] * matrix.factor, m[1][u] * matrix.factor, of);
                }
            }
        }
    }
}

// Where scales are of 32 inputs or of 64, of one of two forms; pairs have a minimum (or a zero) each. kApart: both
// groups may have their own. No branch after the scales are there, so that the instructions of both groups and tiles
// mix.
template <CodeKind kKind, bool kOneRow, PanelScales kOne, PanelScales kOther, bool kApart, class Operand>
__device__ __forceinline__ void multiply_block_groups(const SharedBlock& block, const PackedMatrix& matrix, int apart,
                                                      float zero, const Operand& in, int first, int lane,
                                                      float (&sums)[2][1][4]) {
    constexpr int kScales = code_bits(kKind) * 256, kHeads = kApart ? 2 : 1;
    constexpr bool kPair = kOne == PanelScales::f16_pair;
    const float unit = kCodeUnit<kKind> * matrix.factor;
    float s[kHeads][4], m[kHeads][4];
    load_block_scales<kOne, kOther>(block, matrix.scales, kScales, apart, lane, s, m);
    CodeWords words[2][2];  // [t][g]
    load_block_words<kKind>(block, lane, words);
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        const int head = kApart ? g : 0;
#pragma unroll
        for (int i = 0; i < 4; ++i) {
            if (head != g) continue;
            if constexpr (kPair) m[g][i] = m[g][i] * (matrix.minimum_is_zero ? -s[g][i] : 1.0f) * matrix.factor;
            s[g][i] *= unit;
        }
        const uint4 x = in.operand(first + g);
        float2 of = {};
        float begin[4];
        if constexpr (kKind != CodeKind::e4m3) {
            const float4 sixteens = in.sums(first + g);
            of = {sixteens.x + sixteens.y, kOneRow ? 0.0f : sixteens.z + sixteens.w};
        }
        begin_with_middle<kKind, kOneRow>(begin, zero, of);
#pragma unroll
        for (int t = 0; t < 2; ++t) {
            std::uint32_t p[2][4];
            unpack_words<kKind>(words[t][g], g, {}, p);
            float d[4];
            mma(d, p[0][0], p[1][0], p[0][1], p[1][1], x.x, x.y, begin);
            mma(d, p[0][2], p[1][2], p[0][3], p[1][3], x.z, x.w, d);
            add_scaled<kOneRow>(sums[t][0], d, s[head][2 * t], s[head][2 * t + 1]);
            if constexpr (kPair) add_minimum<kOneRow>(sums[t][0], m[head][2 * t], m[head][2 * t + 1], of);
        }
    }
}

// A block times the activations of groups first and first + 1 of the slice: in.operand(g) is that of group g, and
// in.sums(g) the sums of its sixteens for the lane's two columns. `apart`: bytes_apart() of the block's run, `zero`
// that of the run.
template <CodeKind kKind, bool kOneRow, class Operand>
__device__ __forceinline__ void multiply_packed(const SharedBlock& block, const PackedMatrix& matrix, int apart,
                                                float zero, const Operand& in, int first, int lane,
                                                float (&sums)[2][1][4]) {
    if constexpr (has_halves(kKind)) {
        if constexpr (!is_table(kKind)) {
            multiply_block_halves<kKind, kOneRow, PanelScales::k_pair>(block, matrix, in, first, lane, sums);
        } else if (matrix.scales == PanelScales::k_table) {
            multiply_block_halves<kKind, kOneRow, PanelScales::k_table>(block, matrix, in, first, lane, sums);
        } else {
            multiply_block_halves<kKind, kOneRow, PanelScales::f32_16>(block, matrix, in, first, lane, sums);
        }
    } else {
        using P = PanelScales;
        const bool one_head = apart == 0, pair = matrix.scales == P::f16_pair || matrix.scales == P::f32_pair;
        // Most matrices have float16 scales that both groups of a block share: those have code of their own, with a
        // sixth fewer instructions.
        if constexpr (kKind != CodeKind::e4m3) {
            if (one_head && matrix.scales == P::f16) {
                return multiply_block_groups<kKind, kOneRow, P::f16, P::f16, false>(block, matrix, apart, zero, in,
                                                                                    first, lane, sums);
            }
            if (one_head && matrix.scales == P::f16_pair) {
                return multiply_block_groups<kKind, kOneRow, P::f16_pair, P::f16_pair, false>(
                    block, matrix, apart, zero, in, first, lane, sums);
            }
            if (pair) {
                return multiply_block_groups<kKind, kOneRow, P::f16_pair, P::f32_pair, true>(block, matrix, apart, zero,
                                                                                             in, first, lane, sums);
            }
        }
        multiply_block_groups<kKind, kOneRow, P::f16, P::f32, true>(block, matrix, apart, zero, in, first, lane, sums);
    }
}

}  // namespace foresay::kernels::cuda
