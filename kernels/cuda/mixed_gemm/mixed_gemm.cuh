// kernels/cuda/mixed_gemm/mixed_gemm.cuh: what the kernel of mixed_gemm.h does besides multiplying.
//
// Grid:     up to one CTA per multiprocessor; each takes units in turn. No CTA waits for another's sums.
// Unit:     kPanels panels x kTokens rows of the batch x a part of K.
// Warps:    those that multiply (sm90a/mixed_wgmma.cuh), then kProducerWarps that copy.
// Stage:    of the ring: one block of K: kPanels panel blocks, then the images of the rows (operands.cuh).
// Packed:   blocks of packed rows lie where their matrix's header says (sm90a/packed_tile.cuh), of which every CTA has
//           a copy; in a stage they have the room of the largest.
//
// Data flow of a unit:
//
//   producers  global weights, operands --cp.async.bulk--> stage, slice after slice
//   a warp     stage --wgmma--> sums of a slice; at its end times their factor onto `total`      (registers)
//              K in one part:    total --> epilogue
//              in several:       total --> global memory; the CTA that comes last adds the parts in order --> epilogue
//   epilogue   neighbouring lanes exchange, so that each has pairs of packed rows --> norm factor, bias, rope, ..
//
// Waits:    stage, full: the copies' bytes. Stage, empty: the producers wait for all multiplying warps. Both are
//           mbarriers.
// Overlap:  the producers fill the ring with weights before they wait for the kernels before this one.
// Law 1:    a column of sums is treated by itself, and units differ in rows and columns, or in the part, only.
#pragma once

#include "kernels/cuda/decode/epilogue.cuh"
#include "kernels/cuda/decode/split_k_epilogue.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/mixed_gemm/mixed_plan.h"
#include "kernels/cuda/mixed_gemm/operands.cuh"

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

inline constexpr int kProducerWarps = 4;

#if __CUDA_ARCH__ >= 900
// A copy whose bytes complete `barrier`. stays: others read the same soon, so L2 should keep it.
__device__ inline void copy_to_stage(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier,
                                     bool stays) {
    if (stays) {
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
            "bytes [%0], [%1], %2, [%3];" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier)
            : "memory");
    } else {
        constexpr std::uint64_t evict_first = 0x12f0000000000000;
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::"
            "bytes.L2::cache_hint [%0], [%1], %2, [%3], "
            "%4;" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier), "l"(evict_first)
            : "memory");
    }
}
#endif
// A unit, from its number: rows of the batch fastest, so that CTAs at work at the same time share weights in L2.
template <int kPanels, int kTokens>
struct MixedUnit {
    int panel, panels;  // packed rows: the first panel, how many there are
    int eight, eights;  // rows of the batch likewise, in eights
    int part, tile;
    PartBlocks blocks;

    __device__ MixedUnit(const MixedArgs& args, int unit) : MixedUnit(args, Split(args, unit)) {}

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
    __device__ MixedUnit(const MixedArgs& args, const Split& s)
        : panel(s.row_tile * kPanels),
          panels(min(kPanels, args.op.panel_count - panel)),
          eight(s.token_tile * (kTokens / 8)),
          eights(min(kTokens / 8, args.eights - eight)),
          part(s.part),
          tile(s.row_tile * args.plan.token_tiles + s.token_tile),
          blocks(args.op, s.part) {}
};

// The stages of the units of a CTA in the order in which they are multiplied: kSlices slices at once, block by block.
// The blocks of neighbouring slices are neighbours.
template <QuantType E, int kPanels, int kTokens, int kSlices>
class StageWalk {
public:
    __device__ explicit StageWalk(const MixedArgs& args) : args_(args), unit_(args, number_) {}
    __device__ bool done() const { return number_ >= args_.plan.units; }
    __device__ const MixedUnit<kPanels, kTokens>& unit() const { return unit_; }
    // The first of its blocks, and how many there are.
    __device__ int block() const { return unit_.blocks.first + block_; }
    __device__ int blocks() const { return min(kSlices, unit_.blocks.count - block_); }
    __device__ void advance() {
        block_ += gemv_warps(E);
        if (block_ < unit_.blocks.count) return;
        block_ = slice_ += kSlices;
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

// A stage: [panel][slice] weights, then [slice][eight] images. Before the stages: where slices are multiplied at once,
// the passage of their products; where four warpgroups of 64 rows have no registers for it, the total.
template <QuantType E, int kPanels, int kTokens, int kSlices>
struct MixedTile {
    static constexpr bool kPacked = E == QuantType::packed;
    static constexpr int kWeightBytes = kPacked ? kMostPackedBytes : block_format(E).bytes;
    static constexpr int kImageBytes = OperandImage<E>::kBytes;
    static constexpr int kOperandsAt = kPanels * kSlices * kWeightBytes;
    static constexpr int kImagesOfSlice = kTokens / 8 * kImageBytes;
    static constexpr int kStageBytes = (kOperandsAt + kSlices * kImagesOfSlice + 127) / 128 * 128;
    // Where slices are multiplied at once, their products pass through shared memory.
    static constexpr int kPassageBytes = kSlices > 1 ? kPanels* kPanelRows* kSlices* kTokens * 4 : 0;
    static constexpr int kPassageAt = kMixedRingAt + (kPacked ? static_cast<int>(sizeof(PackedHeader)) : 0);
    static constexpr bool kTotalShared = kPanels == 8 && kSlices == 1 && kTokens == 64;
    static constexpr int kTotalBytes = kTotalShared ? kPanels * kPanelRows * kTokens * 4 : 0;
    static constexpr int kStagesAt = kPassageAt + kPassageBytes + kTotalBytes;
    static_assert(kTokens <= kMixedTile && gemv_warps(E) % kSlices == 0);
};

// Where the blocks of a matrix lie. Packed rows have a form of their own (sm90a/packed_tile.cuh).
template <QuantType E>
class PanelBlocks {
public:
    // By a warp, at the start of the kernel: what all look up in shared memory.
    static __device__ void start(const MixedArgs&, std::uint32_t /*shared*/, int /*lane*/) {}

    __device__ PanelBlocks(const MixedArgs& args, std::uint32_t /*shared*/)
        : panels_(args.step.panels), panel_bytes_(std::int64_t{args.op.blocks} * kBytes) {}
    __device__ std::int64_t panel_bytes() const { return panel_bytes_; }
    // Blocks block .. block + blocks - 1 of a panel: the first one's address, and how many bytes they have.
    __device__ const std::uint8_t* find(int panel, int block, int blocks, std::uint32_t& bytes) const {
        bytes = static_cast<std::uint32_t>(blocks * kBytes);
        return panels_ + panel * panel_bytes_ + block * kBytes;
    }

private:
    static constexpr int kBytes = block_format(E).bytes;
    const std::uint8_t* panels_;
    std::int64_t panel_bytes_;
};

// At the start of the kernel, by all; a __syncthreads() follows. A stage is full when the copies of all producer warps
// are there, and empty when all multiplying warps have released it.
template <QuantType E, int kWarps>
__device__ __forceinline__ void start_stages(const MixedArgs& args, std::uint32_t shared, int warp, int lane) {
    if (warp != kWarps) return;
    PanelBlocks<E>::start(args, shared, lane);
    if (lane < args.plan.stages) {
        mbarrier_init(shared + 16 * lane, kProducerWarps);
        mbarrier_init(shared + 16 * lane + 8, kWarps * kWarpArrivals);
    }
    copy_barriers_ready();
}

// A producer warp, of which one lane works: an instruction that copies takes its addresses for a whole warp. Piece i of
// a stage, a panel's blocks or a slice's images, is that of warp i % kProducerWarps.
template <QuantType E, int kPanels, int kTokens, int kSlices>
__device__ __forceinline__ void produce_stages(const MixedArgs& args, std::uint32_t shared, int producer) {
#if __CUDA_ARCH__ >= 900
    using Tile = MixedTile<E, kPanels, kTokens, kSlices>;
    using Walk = StageWalk<E, kPanels, kTokens, kSlices>;
    const bool weights_stay = args.plan.token_tiles > 1;
    const auto full = [&](int slot) { return shared + 16 * slot; };
    const auto stage = [&](int slot) { return shared + Tile::kStagesAt + slot * Tile::kStageBytes; };
    PanelBlocks<E> places(args, shared);
    const auto image_piece = [&](int slice) { return (kPanels + slice) % kProducerWarps == producer; };
    const auto copy_weights = [&](const Walk& walk, int slot) {
        const int panels = walk.unit().panels, blocks = walk.blocks();
        std::uint32_t piece, bytes = 0;
        const std::uint8_t* from = places.find(walk.unit().panel + producer, walk.block(), blocks, piece);
#pragma unroll
        for (int i = 0; i < kPanels; i += kProducerWarps) bytes += i + producer < panels ? piece : 0;
#pragma unroll
        for (int g = 0; g < kSlices; ++g) {
            if (image_piece(g) && g < blocks) bytes += walk.unit().eights * Tile::kImageBytes;
        }
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full(slot)), "r"(bytes) : "memory");
#pragma unroll
        for (int i = 0; i < kPanels; i += kProducerWarps) {
            if (i + producer < panels) {
                copy_to_stage(stage(slot) + (i + producer) * kSlices * Tile::kWeightBytes, from, piece, full(slot),
                              weights_stay);
            }
            from += kProducerWarps * places.panel_bytes();
        }
    };
    const auto copy_images = [&](const Walk& walk, int slot) {
        const auto bytes = static_cast<std::uint32_t>(walk.unit().eights * Tile::kImageBytes);
#pragma unroll
        for (int g = 0; g < kSlices; ++g) {
            if (!image_piece(g) || g >= walk.blocks()) continue;
            const std::int64_t image = static_cast<std::int64_t>(walk.block() + g) * args.eights + walk.unit().eight;
            copy_to_stage(stage(slot) + Tile::kOperandsAt + g * Tile::kImagesOfSlice,
                          args.operands + image * Tile::kImageBytes, bytes, full(slot), true);
        }
    };
    if (!elect_one()) return;
    // The first round: weights, then the operands, which the kernel before this one makes.
    const int slots = args.plan.stages;
    Walk walk(args), second(args);
    for (int slot = 0; slot < slots && !walk.done(); ++slot, walk.advance()) copy_weights(walk, slot);
    await_predecessors();
    for (int slot = 0; slot < slots && !second.done(); ++slot, second.advance()) copy_images(second, slot);
    int slot = 0;
    std::uint32_t parity = 0;
    for (; !walk.done(); walk.advance()) {
        mbarrier_wait(full(slot) + 8, parity);
        copy_weights(walk, slot);
        copy_images(walk, slot);
        if (++slot == slots) {
            slot = 0;
            parity ^= 1;
        }
    }
#endif
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
    constexpr int kPairs = 2 * kTiles, kAhead = NT < 8 ? NT : 8;
    const EpilogueArgs& f = args.op.epilogue;
    const int odd = lane / 4 % 2;
    const auto packed = [&](int i) { return panel * kPanelRows + tile * 16 + i * 8 + lane / 8 * 2; };
    const auto batch_row = [&](int nt) { return row + nt * 8 + lane % 4 * 2 + odd; };
    // What an epilogue reads comes from L2, so that of several eights of rows is asked for at once. The loop over these
    // is not unrolled, because its body is large, and registers have no index: all move up.
#pragma unroll 1
    for (int first = 0; first < NT; first += kAhead) {
        EpilogueOperand operands[kAhead][kPairs];
#pragma unroll
        for (int j = 0; j < kAhead; ++j) {
#pragma unroll
            for (int i = 0; i < kPairs; ++i) {
                if (batch_row(first + j) < args.rows)
                    operands[j][i] = load_epilogue_operand<kKind>(f, f.residual, packed(i), batch_row(first + j));
            }
        }
#pragma unroll 1
        for (int nt = first; nt < first + kAhead; ++nt) {
            const float factor = __shfl_sync(~0u, factors[0], nt % 4 * 8 + lane % 4 * 2 + odd);
#pragma unroll
            for (int i = 0; i < kPairs; ++i) {
                const float one = total[i / 2][0][i % 2 * 2], two = total[i / 2][0][i % 2 * 2 + 1];
                const float got = __shfl_xor_sync(~0u, odd ? one : two, 4);
                const float a = odd ? got : one, b = odd ? two : got;
                if (batch_row(nt) < args.rows) {
                    epilogue_pair<kKind>(f, f.target(), args.step.bias, args.step.kv, packed(i), batch_row(nt),
                                         a * factor, b * factor, operands[0][i]);
                }
            }
#pragma unroll
            for (int later = 0; later + 1 < NT; ++later) {
#pragma unroll
                for (int i = 0; i < 4 * kTiles; ++i) total[i / 4][later][i % 4] = total[i / 4][later + 1][i % 4];
            }
#pragma unroll
            for (int j = 0; j + 1 < kAhead; ++j) {
#pragma unroll
                for (int i = 0; i < kPairs; ++i) operands[j][i] = operands[j + 1][i];
            }
            if (nt % 4 == 3) {
#pragma unroll
                for (int i = 0; i + 1 < kCount; ++i) factors[i] = factors[i + 1];
            }
        }
    }
}

// Leaves a part's sums in global memory. Returns true, with the sums of all parts, in the CTA that comes last. `warp`:
// among the kOwners that have sums; kOwners: this one has none.
template <int kWarps, int kOwners, int kTiles, int NT>
__device__ __forceinline__ bool add_parts(const MixedArgs& args, float (&total)[kTiles][NT][4], int tile, int part,
                                          int warp, int lane, std::uint32_t flag) {
    constexpr int kFours = kTiles * NT;
    const int parts = args.op.split;
    auto* const terms = reinterpret_cast<float4*>(args.terms) +
                        (static_cast<std::int64_t>(tile) * parts * kOwners + warp) * (kFours * 32) + lane;
    const auto term = [&](int p, int i) {
        return terms + static_cast<std::int64_t>(p) * (kOwners * kFours * 32) + i * 32;
    };
    const bool owns = kOwners == kWarps || warp < kOwners;
#pragma unroll
    for (int i = 0; i < kFours; ++i) {
        if (!owns) break;
        const float(&d)[4] = total[i / NT][i % NT];
        __stcg(term(part, i), float4{d[0], d[1], d[2], d[3]});
    }
    __threadfence();
    named_barrier<1, 32 * kWarps>();
    if (threadIdx.x == 0) {
        const std::uint32_t before = atomicAdd(args.arrivals + tile, 1u);
        const bool last = before == static_cast<std::uint32_t>(parts) - 1;
        if (last) args.arrivals[tile] = 0;
        store_shared2(flag, {last, 0});
    }
    named_barrier<1, 32 * kWarps>();
    if (load_shared1(flag) == 0 || !owns) return false;
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

}  // namespace foresay::kernels::cuda
