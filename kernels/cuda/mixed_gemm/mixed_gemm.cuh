// kernels/cuda/mixed_gemm/mixed_gemm.cuh: the kernel of mixed_gemm.h.
//
// Grid:     up to one CTA per multiprocessor; each takes units in turn. No CTA waits for another.
// Unit:     kPanels panels x kTokens rows of the batch x a part of K.
// Warps:    eight that multiply, each a panel and 8 NT rows; one producer.
// Stage:    of the ring: one block of K: kPanels panel blocks, then the images of the rows (operands.cuh).
//
// Data flow of a unit:
//
//   producer   global weights, operands --cp.async.bulk--> stage, slice after slice
//   a warp     stage --mma--> sums of a slice; at its end times their factor onto `total`        (registers)
//              K in one part:    total --> epilogue
//              in several:       total --> global memory; the CTA that comes last adds the parts in order --> epilogue
//   epilogue   neighbouring lanes exchange, so that each has pairs of packed rows --> norm factor, bias, rope, ..
//
// Waits:    stage, full: the copies' bytes. Stage, empty: the producer waits for all eight warps. Both are mbarriers.
// Overlap:  the producer fills the ring with weights before it waits for the kernels before this one.
// Law 1:    a column of sums is treated by itself, and units differ in rows and columns, or in the part, only.
#pragma once

#include "kernels/cuda/decode/epilogue.cuh"
#include "kernels/cuda/decode/split_k_epilogue.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/mixed_gemm/mixed_plan.h"
#include "kernels/cuda/mixed_gemm/multiply_many.cuh"

namespace foresay::kernels::cuda {

struct MixedArgs {
    GemvOp op;
    GemvStep step;
    MixedPlan plan;
    std::int32_t rows = 0, eights = 0;  // of the batch; images per block
    const std::uint8_t* operands = nullptr;
    const float* squares = nullptr;
    float* terms = nullptr;
    std::uint32_t* arrivals = nullptr;
};

inline constexpr int kMixedWarps = 8;
inline constexpr int kMixedThreads = 32 * (kMixedWarps + 1);

// Bytes of a copy that completes on `barrier`. From sm_90 on one lane copies all; before, all lanes of the warp.
__device__ inline void copy_to_stage(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier,
                                     bool stays) {
#if __CUDA_ARCH__ >= 900
    if (stays) {
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier)
            : "memory");
    } else {
        constexpr std::uint64_t evict_first = 0x12f0000000000000;
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
            "%4;" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier), "l"(evict_first)
            : "memory");
    }
#else
    (void)barrier;
    (void)stays;
    for (std::uint32_t at = 16u * (threadIdx.x % 32); at < bytes; at += 512u) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at),
                     "l"(static_cast<const char*>(from) + at)
                     : "memory");
    }
#endif
}

// A unit, from its number: rows of the batch fastest, so that CTAs at work at the same time share weights in L2.
template <int kPanels, int kTokens>
struct MixedUnit {
    int panel, panels;  // packed rows: the first panel, how many there are
    int eight, eights;  // rows of the batch likewise, in eights
    int part, tile;
    PartBlocks blocks;

    __device__ MixedUnit(const MixedArgs& args, int unit) : MixedUnit(args, unit, Split(args, unit)) {}

private:
    struct Split {
        int token_tile, part, row_tile;
        __device__ Split(const MixedArgs& args, int unit) {
            const int rest = unit / args.plan.token_tiles;
            token_tile = unit - rest * args.plan.token_tiles;
            row_tile = rest / args.op.split;
            part = rest - row_tile * args.op.split;
        }
    };
    __device__ MixedUnit(const MixedArgs& args, int, const Split& s)
        : panel(s.row_tile * kPanels),
          panels(min(kPanels, args.op.panel_count - panel)),
          eight(s.token_tile * (kTokens / 8)),
          eights(min(kTokens / 8, args.eights - eight)),
          part(s.part),
          tile(s.row_tile * args.plan.token_tiles + s.token_tile),
          blocks(args.op, s.part) {}
};

// The blocks of the units of a CTA in the order in which they are multiplied: slice by slice.
template <QuantType E, int kPanels, int kTokens>
class BlockWalk {
public:
    __device__ explicit BlockWalk(const MixedArgs& args) : args_(args), unit_(args, static_cast<int>(blockIdx.x)) {}
    __device__ bool done() const { return number_ >= args_.plan.units; }
    __device__ const MixedUnit<kPanels, kTokens>& unit() const { return unit_; }
    __device__ int block() const { return unit_.blocks.first + block_; }
    __device__ void advance() {
        block_ += gemv_warps(E);
        if (block_ < unit_.blocks.count) return;
        block_ = ++slice_;
        if (slice_ < min(gemv_warps(E), unit_.blocks.count)) return;
        block_ = slice_ = 0;
        number_ += static_cast<int>(gridDim.x);
        if (!done()) unit_ = MixedUnit<kPanels, kTokens>(args_, number_);
    }

private:
    const MixedArgs& args_;
    int number_ = static_cast<int>(blockIdx.x), slice_ = 0, block_ = 0;
    MixedUnit<kPanels, kTokens> unit_;
};

template <QuantType E, int kPanels, int NT>
struct MixedTile {
    static constexpr int kTokenWarps = kMixedWarps / kPanels, kTokens = kTokenWarps * NT * 8;
    static constexpr int kWeightBytes = block_format(E).bytes, kImageBytes = OperandImage<E>::kBytes;
    static constexpr int kOperandsAt = kPanels * kWeightBytes;
    static constexpr int kStageBytes = (kOperandsAt + kTokens / 8 * kImageBytes + 127) / 128 * 128;
    static_assert(kTokens <= kMixedTile);
};

// The producer warp.
template <QuantType E, int kPanels, int NT>
__device__ __forceinline__ void produce_stages(const MixedArgs& args, std::uint32_t shared) {
    using Tile = MixedTile<E, kPanels, NT>;
    using Walk = BlockWalk<E, kPanels, Tile::kTokens>;
    const auto lane = static_cast<int>(threadIdx.x % 32);
    const bool weights_stay = args.plan.token_tiles > 1;
    const auto full = [&](int slot) { return shared + 16 * slot; };
    const auto stage = [&](int slot) { return shared + kMixedRingAt + slot * Tile::kStageBytes; };
    const auto copy_weights = [&](const Walk& walk, int slot) {
#if __CUDA_ARCH__ >= 900
        if (lane == 0) {
            const auto bytes = static_cast<std::uint32_t>(walk.unit().panels * Tile::kWeightBytes +
                                                          walk.unit().eights * Tile::kImageBytes);
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full(slot)), "r"(bytes) : "memory");
        }
        __syncwarp();
        const int begin = lane, end = min(lane + 1, walk.unit().panels);
#else
        const int begin = 0, end = walk.unit().panels;
#endif
        for (int i = begin; i < end; ++i) {
            const std::int64_t block = static_cast<std::int64_t>(walk.unit().panel + i) * args.op.blocks + walk.block();
            copy_to_stage(stage(slot) + i * Tile::kWeightBytes, args.step.panels + block * Tile::kWeightBytes,
                          Tile::kWeightBytes, full(slot), weights_stay);
        }
    };
    const auto copy_operands = [&](const Walk& walk, int slot) {
        const std::int64_t image = static_cast<std::int64_t>(walk.block()) * args.eights + walk.unit().eight;
        const auto bytes = static_cast<std::uint32_t>(walk.unit().eights * Tile::kImageBytes);
#if __CUDA_ARCH__ >= 900
        if (lane == 0) {
            copy_to_stage(stage(slot) + Tile::kOperandsAt, args.operands + image * Tile::kImageBytes, bytes, full(slot),
                          true);
        }
#else
        copy_to_stage(stage(slot) + Tile::kOperandsAt, args.operands + image * Tile::kImageBytes, bytes, full(slot),
                      true);
        asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(full(slot)) : "memory");
#endif
    };
    // The first round: weights, then the operands, which the kernel before this one makes.
    const int slots = args.plan.stages;
    Walk walk(args), second(args);
    for (int slot = 0; slot < slots && !walk.done(); ++slot, walk.advance()) copy_weights(walk, slot);
    await_predecessors();
    for (int slot = 0; slot < slots && !second.done(); ++slot, second.advance()) copy_operands(second, slot);
    int slot = 0;
    std::uint32_t parity = 0;
    for (; !walk.done(); walk.advance()) {
        mbarrier_wait(full(slot) + 8, parity);
        copy_weights(walk, slot);
        copy_operands(walk, slot);
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
    }
}

// 1 / rms of kCount times 32 rows, lane t % 32 that of row t: squares added slice by slice, part by part.
template <QuantType E, int kCount>
__device__ __forceinline__ void norm_factors(const MixedArgs& args, int row, int lane, float (&factors)[kCount]) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
        factors[i] = 1.0f;
        const int t = row + 32 * i + lane;
        if (args.step.norm == nullptr || t >= args.rows) continue;
        float all = 0.0f;
        for (int part = 0; part < args.op.split; ++part) {
            float squares = 0.0f;
#pragma unroll
            for (int w = 0; w < gemv_warps(E); ++w) {
                squares += __ldcg(args.squares + (part * gemv_warps(E) + w) * 8 * args.eights + t);
            }
            all = part == 0 ? squares : all + squares;
        }
        factors[i] = norm_factor(args.op, all);
    }
}

// What becomes of a warp's sums, of kTiles tiles of `panel` from `tile` on: lanes of neighbouring packed rows exchange,
// so that each has both rows of a pair for one row of the batch.
template <Epilogue kKind, int kTiles, int NT, int kCount>
__device__ __forceinline__ void finish_sums(const MixedArgs& args, float (&total)[kTiles][NT][4],
                                            float (&factors)[kCount], int panel, int tile, int row, int lane) {
    static_assert(kCount * 4 >= NT);
    constexpr int kPairs = 2 * kTiles;
    const EpilogueArgs& f = args.op.epilogue;
    const int odd = lane / 4 % 2;
    const auto packed = [&](int i) { return panel * kPanelRows + tile * 16 + i * 8 + lane / 8 * 2; };
    const auto batch_row = [&](int nt) { return row + nt * 8 + lane % 4 * 2 + odd; };
    // Loaded for the next eight rows while these are finished.
    EpilogueOperand operands[kPairs], next[kPairs];
    const auto load = [&](int nt, EpilogueOperand(&to)[kPairs]) {
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
            if (batch_row(nt) < args.rows) {
                to[i] = load_epilogue_operand<kKind>(f, f.residual, packed(i), batch_row(nt));
            }
        }
    };
    load(0, operands);
#pragma unroll 1
    for (int nt = 0; nt < NT; ++nt) {
        if (nt + 1 < NT) load(nt + 1, next);
        const float factor = __shfl_sync(~0u, factors[0], nt % 4 * 8 + lane % 4 * 2 + odd);
#pragma unroll
        for (int i = 0; i < kPairs; ++i) {
            const float first = total[i / 2][0][i % 2 * 2], second = total[i / 2][0][i % 2 * 2 + 1];
            const float got = __shfl_xor_sync(~0u, odd ? first : second, 4);
            const float a = odd ? got : first, b = odd ? second : got;
            if (batch_row(nt) < args.rows) {
                epilogue_pair<kKind>(f, f.out, args.step.bias, args.step.kv, packed(i), batch_row(nt), a * factor,
                                     b * factor, operands[i]);
            }
        }
        // The loop is not unrolled, because its body is large, and registers have no index: the sums move up.
#pragma unroll
        for (int later = 0; later + 1 < NT; ++later) {
#pragma unroll
            for (int i = 0; i < 4 * kTiles; ++i) total[i / 4][later][i % 4] = total[i / 4][later + 1][i % 4];
        }
        if (nt % 4 == 3) {
#pragma unroll
            for (int i = 0; i + 1 < kCount; ++i) factors[i] = factors[i + 1];
        }
#pragma unroll
        for (int i = 0; i < kPairs; ++i) operands[i] = next[i];
    }
}

// Leaves a part's sums in global memory. Returns true, with the sums of all parts, in the CTA that comes last.
template <int kTiles, int NT>
__device__ __forceinline__ bool add_parts(const MixedArgs& args, float (&total)[kTiles][NT][4], int tile, int part,
                                          int warp, int lane, std::uint32_t flag) {
    constexpr int kFours = kTiles * NT;
    const int parts = args.op.split;
    auto* const terms = reinterpret_cast<float4*>(args.terms) +
                        (static_cast<std::int64_t>(tile) * parts * kMixedWarps + warp) * (kFours * 32) + lane;
    const auto term = [&](int p, int i) {
        return terms + static_cast<std::int64_t>(p) * (kMixedWarps * kFours * 32) + i * 32;
    };
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
        const float(&d)[4] = total[i / NT][i % NT];
        __stcg(term(part, i), float4{d[0], d[1], d[2], d[3]});
    }
    __threadfence();
    named_barrier<1, 32 * kMixedWarps>();
    if (threadIdx.x == 0) {
        const std::uint32_t before = atomicAdd(args.arrivals + tile, 1u);
        const bool last = before == static_cast<std::uint32_t>(parts) - 1;
        if (last) args.arrivals[tile] = 0;
        store_shared2(flag, {last, 0});
    }
    named_barrier<1, 32 * kMixedWarps>();
    if (load_shared1(flag) == 0) return false;
    __threadfence();
#pragma unroll 1
    for (int p = 0; p < parts; ++p) {
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            float(&d)[4] = total[i / NT][i % NT];
            const float4 v = __ldcg(term(p, i));
            if (p == 0) {
                d[0] = v.x, d[1] = v.y, d[2] = v.z, d[3] = v.w;
            } else {
                d[0] += v.x, d[1] += v.y, d[2] += v.z, d[3] += v.w;
            }
        }
    }
    return true;
}

template <QuantType E, int kPanels, int NT>
__global__ void __launch_bounds__(kMixedThreads, 1) mixed_gemm(const __grid_constant__ MixedArgs args) {
    using Tile = MixedTile<E, kPanels, NT>;
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
    if (warp == kMixedWarps) {
        produce_stages<E, kPanels, NT>(args, shared);
        return;
    }
    await_predecessors();
    const int panel_warp = warp % kPanels, token_warp = warp / kPanels;
    int slot = 0;
    std::uint32_t parity = 0;
#pragma unroll 1
    for (int number = static_cast<int>(blockIdx.x); number < args.plan.units; number += static_cast<int>(gridDim.x)) {
        const MixedUnit<kPanels, Tile::kTokens> unit(args, number);
        const int row = 8 * (unit.eight + token_warp * NT);
        // Warps without rows or panels wait and release with the others.
        const bool active = panel_warp < unit.panels && row < args.rows;
        float factors[(NT + 3) / 4];
        norm_factors<E>(args, row, lane, factors);
        float total[2][NT][4] = {};
        const int count = unit.blocks.count;
#pragma unroll 1
        for (int w = 0; w < min(gemv_warps(E), count); ++w) {
            float sums[2][NT][4] = {};
#pragma unroll 1
            for (int block = w; block < count; block += gemv_warps(E)) {
                mbarrier_wait(shared + 16 * slot, parity);
                const std::uint32_t stage = shared + kMixedRingAt + slot * Tile::kStageBytes;
                if (active) {
                    const ImageRows<E> in(stage + Tile::kOperandsAt + token_warp * NT * Tile::kImageBytes, lane);
                    MultiplyMany<E, NT>::run(stage + panel_warp * Tile::kWeightBytes, in, sums, lane);
                    if (block + gemv_warps(E) >= count) {
                        // The slice ends. Product and sum are rounded apart, as where one warp leaves the product and
                        // another adds it.
#pragma unroll
                        for (int nt = 0; nt < NT; ++nt) {
                            const float2 back = in.back(nt);
#pragma unroll
                            for (int t = 0; t < 2; ++t) {
#pragma unroll
                                for (int i = 0; i < 4; ++i) {
                                    total[t][nt][i] = __fadd_rn(
                                        total[t][nt][i], __fmul_rn(sums[t][nt][i], i % 2 == 0 ? back.x : back.y));
                                }
                            }
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
        if (args.op.split > 1 && !add_parts(args, total, unit.tile, unit.part, warp, lane, shared + kMixedFlagAt))
            continue;
        if (!active) continue;
        with_epilogue(args.op.epilogue.kind, [&](auto kind) {
            finish_sums<kind>(args, total, factors, unit.panel + panel_warp, 0, row, lane);
        });
    }
}

template <QuantType E, int kPanels, int NT>
void launch_mixed_tile(const MixedArgs& args, int processors, int shared_bytes, cudaStream_t stream) {
    launch_overlapping("mixed_gemm", mixed_gemm<E, kPanels, NT>,
                       dim3(static_cast<unsigned>(std::min(args.plan.units, processors))), kMixedThreads, shared_bytes,
                       stream, args);
}

// One file per quantisation type instantiates this.
template <QuantType E>
void launch_mixed_as(const OperandCall& operands, const MixedArgs& args, int processors, int shared_bytes,
                     cudaStream_t stream) {
    const int slices = operands.op.split * gemv_warps(E);
    launch_overlapping("operands", make_operands<E>,
                       dim3(static_cast<unsigned>(operands.eights),
                            static_cast<unsigned>((slices + kOperandWarps - 1) / kOperandWarps)),
                       32 * kOperandWarps, 0, stream, operands);
    if (args.plan.warpgroups) return;  // the caller has the kernel
    const auto launch = [&](auto panels, auto nt) {
        if (args.plan.panels == panels && args.plan.nt == nt)
            launch_mixed_tile<E, panels, nt>(args, processors, shared_bytes, stream);
    };
    visit_mixed_tiles<E>(launch);
}

}  // namespace foresay::kernels::cuda
