// kernels/cuda/experts/sm90a/group_packed.cuh: what a warp of a warpgroup unpacks of a block of packed rows: its tile
// of 16 rows and 64 inputs, as float16 operands A of four wgmma.
//
// Numbers:  weights times 2^shift (`times`), without the matrix's factor, computed in float32 by the formula of
//           kernels/quant/packing.h and rounded to float16 once.
#pragma once

#include "kernels/cuda/decode/packed_header.cuh"
#include "kernels/cuda/experts/sm90a/group_weights.cuh"
#include "kernels/cuda/weights/packed_codes.cuh"

namespace foresay::kernels::cuda {

template <CodeKind kKind>
__device__ __forceinline__ void unpack_packed(const SharedBlock& block, const SharedHeader& header,
                                              const PackedRun& run, int tile, int lane, float times, StepOperands& a) {
    constexpr int kScales = code_bits(kKind) * 256;
    constexpr float kUnit = kCodeUnit<kKind>, kUpperUnit = kUnit / 16.0f;
    const PanelScales scales = header.scales();
    const bool minimum_is_zero = header.minimum_is_zero();
    const bool has_minimum = !minimum_is_zero && (scales == PanelScales::f16_pair || scales == PanelScales::f32_pair ||
                                                  scales == PanelScales::k_pair);
    uint4 table = {};
    if constexpr (is_table(kKind)) table = header.table();
    // s and m: times 2^shift, but for an m that is a zero.
    const auto pair = [&](std::uint32_t codes, float unit, float s, float m) {
        const float2 number = as_floats(codes);
        const float zero = is_table(kKind) ? 128.0f : kKind == CodeKind::e4m3 ? 0.0f : minimum_is_zero ? m : run.zero;
        float2 value = {s * (number.x * unit - zero), s * (number.y * unit - zero)};
        if (has_minimum) value = {value.x + m, value.y + m};
        return as_bits(__floats2half2_rn(value.x, value.y));
    };
    [[maybe_unused]] float s16[2][4], m16[2][4];
    if constexpr (has_halves(kKind)) load_halves(block, scales, kScales, tile, lane, s16, m16);
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        [[maybe_unused]] float s32[2], m32[2];
        if constexpr (!has_halves(kKind)) {
            load_tile_scales(block, scales, kScales + (g == 1 && run.apart ? scale_bytes(scales) : 0), tile, lane, s32,
                             m32);
        }
        std::uint32_t p[2][4];
        load_pairs<kKind>(block, tile, g, lane, table, p);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int step = 0; step < 2; ++step) {
                float s, m;
                if constexpr (has_halves(kKind)) {
                    s = s16[h][2 * g + step] * times, m = m16[h][2 * g + step] * times;
                } else {
                    s = s32[h] * times, m = minimum_is_zero ? m32[h] : m32[h] * times;
                }
                a[2 * g + step][h] = pair(p[h][2 * step], kUnit, s, m);
                a[2 * g + step][2 + h] = pair(p[h][2 * step + 1], kUpperUnit, s, m);
            }
        }
    }
}

}  // namespace foresay::kernels::cuda
