// kernels/cuda/mixed_gemm/sm90a/mixed_wgmma.cuh: mixed_gemm for more than 64 rows, by the matrix instruction of a
// warpgroup.
//
// As mixed_gemm.cuh, but for who multiplies: two warpgroups, each 64 packed rows x 128 rows of the batch. Operand A is
// unpacked in registers; operand B is read from the stage by the hardware, where the images lie in its order
// (OperandCall::in_columns).
//
// Registers: d, the product of a group of 32 inputs; sums of the slice; total: 64 each. 240 for these warps, 24 for
// those
//           of the producer's warpgroup.
// Overlap:  while one warpgroup adds its products with their scales, the tensor cores have the other one's.
#pragma once

#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/mixed_gemm/mixed_gemm.cuh"

namespace foresay::kernels::cuda {

inline constexpr int kGroupedThreads = 3 * 128;

// What a warp of a warpgroup unpacks of a block: its tile of 16 rows.
template <QuantType E>
struct TileBlock;

// Q4_0 and Q8_0.
template <QuantType E>
struct TileBlockScaled {
    static constexpr int kGroups = 2;
    std::uint32_t scale[2];  // halves: groups 0 and 1
    uint4 codes[E == QuantType::q4_0 ? 1 : 2];

    __device__ TileBlockScaled(std::uint32_t block, int tile, int lane) {
        load_shared2(scale[0], scale[1], block + block_format(E).scale_begin + lane / 4 * 16 + tile * 8);
        if constexpr (E == QuantType::q4_0) {
            codes[0] = load_shared4(block + tile * 512 + lane * 16);
        } else {
            codes[0] = load_shared4(block + tile * 1024 + lane * 16);
            codes[1] = load_shared4(block + tile * 1024 + 512 + lane * 16);
        }
    }
    // Operand A of step s of group g.
    __device__ void operand(int g, std::uint32_t (&a)[2][4]) const {
        std::uint32_t p[2][4];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            if constexpr (E == QuantType::q4_0) {
                unpack_nibbles(word_of(codes[0], 2 * g + h), p[h]);
            } else {
#pragma unroll
                for (int s = 0; s < 2; ++s) {
                    const std::uint32_t word = word_of(codes[g], 2 * h + s);
                    p[h][2 * s] = word & 0x00ff00ffu;
                    p[h][2 * s + 1] = __byte_perm(word, 0, 0x4341);
                }
            }
        }
#pragma unroll
        for (int s = 0; s < 2; ++s) {
            a[s][0] = p[0][2 * s];
            a[s][1] = p[1][2 * s];
            a[s][2] = p[0][2 * s + 1];
            a[s][3] = p[1][2 * s + 1];
        }
    }
    __device__ float scale_of(int g, int h) const {
        const float2 both = as_floats(scale[h]);
        return g == 0 ? both.x : both.y;
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
__global__ void __launch_bounds__(kGroupedThreads, 1) mixed_wgmma(const __grid_constant__ MixedArgs args) {
    constexpr int kPanels = 4, kSums = kMixedTile / 2;
    using Tile = MixedTile<E, kPanels, 8>;
    static_assert(Tile::kTokens == kMixedTile);
    using Image = OperandImage<E>;
    extern __shared__ __align__(128) char memory[];
    const std::uint32_t shared = shared_address(memory);
    allow_successor();
    const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    if (warp == kMixedWarps) {
        if (lane < args.plan.stages) {
            copy_barrier_init(shared + 16 * lane);
            mbarrier_init(shared + 16 * lane + 8, kMixedWarps * kWarpArrivals);
        }
        copy_barriers_ready();
    }
    __syncthreads();
    if (warp >= kMixedWarps) {
        if constexpr (kHasWgmma) asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (warp == kMixedWarps) produce_stages<E, kPanels, 8>(args, shared);
        return;
    }
    if constexpr (kHasWgmma) asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    await_predecessors();
    const int group = warp / 4, panel_warp = group * 2 + warp % 4 / 2, tile = warp % 2;
    int slot = 0;
    std::uint32_t parity = 0;
#pragma unroll 1
    for (int number = static_cast<int>(blockIdx.x); number < args.plan.units; number += static_cast<int>(gridDim.x)) {
        const MixedUnit<kPanels, kMixedTile> unit(args, number);
        const int row = 8 * unit.eight;
        float total[kSums];
#pragma unroll
        for (int i = 0; i < kSums; ++i) total[i] = 0.0f;
        const int count = unit.blocks.count;
#pragma unroll 1
        for (int w = 0; w < min(gemv_warps(E), count); ++w) {
            float sums[kSums];
#pragma unroll
            for (int i = 0; i < kSums; ++i) sums[i] = 0.0f;
#pragma unroll 1
            for (int block = w; block < count; block += gemv_warps(E)) {
                mbarrier_wait(shared + 16 * slot, parity);
                const std::uint32_t stage = shared + kMixedRingAt + slot * Tile::kStageBytes;
                const std::uint32_t images = stage + Tile::kOperandsAt;
                // Panels past the last are whatever the stage held; their sums go nowhere.
                const TileBlock<E> weights(stage + panel_warp * Tile::kWeightBytes, tile, lane);
                std::uint32_t offset[4] = {weights.scale[0], weights.scale[1], 0, 0};
                std::uint32_t a[2][4];
                float d[kSums];
                weights.operand(0, a);
                keep_registers(offset);
                keep_registers(a[0]);
                keep_registers(a[1]);
                wgmma_fence();
                // The sums lie as 8 x 8 once; the other 8 inputs have weights 0.
                wgmma<true>(sums, offset, wgmma_operand(images + Image::kSumsAt, 0, Image::kBytes));
                wgmma<false>(d, a[0], wgmma_operand(images, 128, Image::kBytes));
                wgmma<true>(d, a[1], wgmma_operand(images + 256, 128, Image::kBytes));
                wgmma_commit();
                std::uint32_t b[2][4];
                weights.operand(1, b);
                const float s0 = weights.scale_of(0, 0), s1 = weights.scale_of(0, 1);
                wgmma_wait();
                keep_registers(sums);
                keep_registers(d);
#pragma unroll
                for (int i = 0; i < kSums; ++i) sums[i] = fmaf(i % 4 < 2 ? s0 : s1, d[i], sums[i]);
                keep_registers(b[0]);
                keep_registers(b[1]);
                wgmma_fence();
                wgmma<false>(d, b[0], wgmma_operand(images + 512, 128, Image::kBytes));
                wgmma<true>(d, b[1], wgmma_operand(images + 768, 128, Image::kBytes));
                wgmma_commit();
                const float t0 = weights.scale_of(1, 0), t1 = weights.scale_of(1, 1);
                wgmma_wait();
                keep_registers(d);
#pragma unroll
                for (int i = 0; i < kSums; ++i) sums[i] = fmaf(i % 4 < 2 ? t0 : t1, d[i], sums[i]);
                if (block + gemv_warps(E) >= count) {
#pragma unroll
                    for (int j = 0; j < kSums / 4; ++j) {
                        std::uint32_t x, y;
                        load_shared2(x, y, images + j * Image::kBytes + Image::kBackAt + lane % 4 * 8);
#pragma unroll
                        for (int i = 0; i < 4; ++i) {
                            total[4 * j + i] = __fadd_rn(
                                total[4 * j + i], __fmul_rn(sums[4 * j + i], __uint_as_float(i % 2 == 0 ? x : y)));
                        }
                    }
                }
                mbarrier_arrive_warp(shared + 16 * slot + 8);
                if (++slot == args.plan.stages) {
                    slot = 0;
                    parity ^= 1;
                }
            }
        }
        float(&sums_of)[1][kSums / 4][4] = reinterpret_cast<float(&)[1][kSums / 4][4]>(total);
        if (args.op.split > 1 && !add_parts(args, sums_of, unit.tile, unit.part, warp, lane, shared + kMixedFlagAt))
            continue;
        float factors[kMixedTile / 32];
        norm_factors<E>(args, row, lane, factors);
        if (panel_warp < unit.panels) {
            with_epilogue(args.op.epilogue.kind, [&](auto kind) {
                finish_sums<kind>(args, sums_of, factors, unit.panel + panel_warp, tile, row, lane);
            });
        }
    }
}

}  // namespace foresay::kernels::cuda
