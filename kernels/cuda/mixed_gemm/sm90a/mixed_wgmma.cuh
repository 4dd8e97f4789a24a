// kernels/cuda/mixed_gemm/sm90a/mixed_wgmma.cuh: mixed_gemm by the matrix instruction of a warpgroup.
//
// As mixed_gemm.cuh says, and who multiplies: warpgroups, each 64 packed rows (two panels) x N rows of the batch, with
// operand A unpacked in registers. The hardware reads operand B from the stage, where the images lie in its order
// (operands.cuh). In tiles for few rows, kSlices warpgroups have the same packed rows and a slice of K each
// (add_slices()); what the tile has of rows of the batch is then finished in equal shares of at least eight.
//
// Packed:   rows whose blocks are not alike are multiplied as packed_tile.cuh says; all else is common.
// Registers: per thread N / 2 each of products, sums of the slice and total; two products at once up to 64 rows, but
// for
//           four warpgroups of 64 rows one, and their total, if it is no share of it, lies in shared memory. Q6_K has
//           the sums of a block besides. The producers' warpgroup gives registers to the others.
// Overlap:  while one warpgroup adds its products with their scales, the tensor cores have another's.
#pragma once

#include <algorithm>
#include <atomic>

#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/mixed_gemm/mixed_gemm.cuh"
#include "kernels/cuda/mixed_gemm/sm90a/tile_blocks.cuh"

namespace foresay::kernels::cuda {

// As launch_overlapping() (device/launch.cuh), for a kernel whose attributes are set.
template <class Params>
void launch_dependent(const char* name, void (*kernel)(Params), dim3 grid, int threads, int shared_bytes,
                      cudaStream_t stream, const Params& params) {
    cudaLaunchAttribute attributes[1] = {};
    attributes[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[0].val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    config.numAttrs = 1;
    launch_check(cudaLaunchKernelEx(&config, kernel, params), name);
}

inline constexpr int kProducerRegisters = 32;

template <int kPanels, int kSlices>
struct WgmmaGroups {
    static constexpr int kWarps = kPanels / 2 * kSlices * 4;
    static constexpr int kThreads = 32 * (kWarps + kProducerWarps);
    // What the compiler gives each thread at the launch, and what the multiplying warps have once the producers have
    // few. Together no more than at the launch, or the instruction that asks for more waits for ever. Multiples of 8.
    static constexpr int kLaunched = 65536 / kThreads / 8 * 8;
    static constexpr int kLeft = (kLaunched * kThreads - kProducerRegisters * 32 * kProducerWarps) / (32 * kWarps);
    static constexpr int kRegisters = kLeft / 8 * 8;
    static_assert(kRegisters <= 240);
};

// Plain numbers: all products of a block onto the sums, the low plane before the high one.
template <QuantType E, int N>
__device__ __forceinline__ void multiply_float_tile(const TileBlock<E>& weights, std::uint32_t images,
                                                    float (&sums)[N / 2]) {
    using Image = OperandImage<E>;
    std::uint32_t a[4][4];
#pragma unroll
    for (int i = 0; i < 4; ++i) weights.step(i, a[i]);
#pragma unroll
    for (int i = 0; i < 4; ++i) keep_registers(a[i]);
    const WgmmaOperands operands(images, 128, Image::kBytes);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int plane = 1; plane >= 0; --plane) {
            const std::uint64_t b = operands.at(plane * Image::kGroups * 512 + i * 256);
            if constexpr (E == QuantType::bf16) {
                wgmma_bf16<true>(sums, a[i], b);
            } else {
                wgmma<true>(sums, a[i], b);
            }
        }
    }
    wgmma_commit();
    wgmma_wait();
    keep_registers(sums);
}

// A block's products onto the sums of the slice. kTwo: products two at a time.
template <QuantType E, int N, bool kTwo>
__device__ __forceinline__ void multiply_tile(const TileBlock<E>& weights, std::uint32_t images, float (&sums)[N / 2]) {
    using Image = OperandImage<E>;
    using Block = TileBlock<E>;
    if constexpr (Block::kFirst == FirstProduct::none) {
        multiply_float_tile<E, N>(weights, images, sums);
        return;
    } else {
        constexpr int kSums = N / 2, kSteps = Block::kSteps;
        constexpr bool kPart = Block::kFirst == FirstProduct::part;
        const WgmmaOperands operands(images, 128, Image::kBytes);
        const auto operand = [&](int product, int step) { return operands.at((product * kSteps + step) * 256); };
        std::uint32_t first[4] = {weights.first[0], weights.first[1], weights.first[2], weights.first[3]};
        float part[kPart ? kSums : 1];
        if constexpr (Block::kFirst == FirstProduct::scaled) {
            float d[kSums];
            keep_registers(first);
            wgmma_fence();
            wgmma<false>(d, first, operands.at(Image::kSumsAt));
            wgmma_commit();
            wgmma_wait();
            keep_registers(d);
            add_product(sums, d, weights.first_scale);
        }
        if constexpr (kPart) {
            keep_registers(first);
            wgmma_fence();
            wgmma<false>(part, first, operands.at(Image::kSumsAt));
            wgmma<true>(part, first, operands.at(Image::kSumsAt + 256));
            wgmma_commit();
            wgmma_wait();
            keep_registers(part);
        }
#pragma unroll
        for (int i = 0; i < Block::kPairs; ++i) {
            std::uint32_t a[2][kSteps][4];
            float s[2][2];
            weights.pair(i, a, s);
            const bool adds_first = Block::kFirst == FirstProduct::onto_sums && i == 0;
            if constexpr (kTwo) {
                float d[2][kSums];
                if (adds_first) keep_registers(first);
#pragma unroll
                for (int p = 0; p < 2; ++p) {
#pragma unroll
                    for (int step = 0; step < kSteps; ++step) keep_registers(a[p][step]);
                }
                wgmma_fence();
                // The sums of the inputs lie as 8 x 8 once; the other 8 inputs have weights 0.
                if (adds_first) wgmma<true>(sums, first, operands.repeated_at(Image::kSumsAt));
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    wgmma<false>(d[p], a[p][0], operand(2 * i + p, 0));
                    if constexpr (kSteps > 1) wgmma<true>(d[p], a[p][kSteps - 1], operand(2 * i + p, 1));
                }
                wgmma_commit();
                wgmma_wait();
                if (adds_first) keep_registers(sums);
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    keep_registers(d[p]);
                    if constexpr (kPart) {
                        add_product(part, d[p], s[p]);
                    } else {
                        add_product(sums, d[p], s[p]);
                    }
                }
            } else {
                static_assert(!kPart, "no room for the sums of a block");
#pragma unroll
                for (int p = 0; p < 2; ++p) {
                    float d[kSums];
                    if (adds_first && p == 0) keep_registers(first);
#pragma unroll
                    for (int step = 0; step < kSteps; ++step) keep_registers(a[p][step]);
                    wgmma_fence();
                    if (adds_first && p == 0) wgmma<true>(sums, first, operands.repeated_at(Image::kSumsAt));
                    wgmma<false>(d, a[p][0], operand(2 * i + p, 0));
                    if constexpr (kSteps > 1) wgmma<true>(d, a[p][kSteps - 1], operand(2 * i + p, 1));
                    wgmma_commit();
                    wgmma_wait();
                    if (adds_first && p == 0) keep_registers(sums);
                    keep_registers(d);
                    add_product(sums, d, s[p]);
                }
            }
        }
        if constexpr (kPart) add_product(sums, part, weights.d);
    }
}

// Blocks as a warp multiplies them. Packed rows have a form of their own (packed_tile.cuh).
template <QuantType E>
struct TileBlocks {
    int tile, lane;
    __device__ TileBlocks(std::uint32_t /*shared*/, int of_tile, int of_lane) : tile(of_tile), lane(of_lane) {}
    // Adds the products of block `block` to `sums`: the slice-th of those that lie at `at`.
    template <int N, bool kTwo>
    __device__ __forceinline__ void multiply(std::uint32_t at, int /*block*/, int slice, std::uint32_t images,
                                             float (&sums)[N / 2]) {
        const TileBlock<E> weights(at + slice * block_format(E).bytes, tile, lane);
        multiply_tile<E, N, kTwo>(weights, images, sums);
    }
};

__device__ __forceinline__ void store_four(std::uint32_t to, float a, float b, float c, float d) {
    store_shared2(to, {__float_as_uint(a), __float_as_uint(b)});
    store_shared2(to + 8, {__float_as_uint(c), __float_as_uint(d)});
}

// The total of a thread's sums, in shared memory: [eight][thread of the warpgroup] 16 bytes. Of matrices in one part.
class SharedTotal {
public:
    __device__ SharedTotal(std::uint32_t totals, int group, int eights)
        : at_(totals + static_cast<std::uint32_t>(group * eights * 2048) + threadIdx.x % 128 * 16) {}
    __device__ __forceinline__ void set(int eight, const float (&v)[4]) const {
        store_four(at_ + eight * 2048, v[0], v[1], v[2], v[3]);
    }
    __device__ __forceinline__ void get(int eight, float (&v)[4]) const {
        const uint4 words = load_shared4(at_ + eight * 2048);
        v[0] = __uint_as_float(words.x), v[1] = __uint_as_float(words.y);
        v[2] = __uint_as_float(words.z), v[3] = __uint_as_float(words.w);
    }

private:
    std::uint32_t at_;
};

// Slices that are multiplied at once: their products, in shared memory, are added to `total` in the order of the
// slices. Each of the kSlices warpgroups adds, and finishes, its share of the rows of the batch (own_columns()).
// [slice][eight][thread] 16 bytes.
template <int kSlices, int N, int kThreads>
__device__ __forceinline__ void add_slices(std::uint32_t passage, int slice, int slices, const float (&sums)[N / 2],
                                           float (&total)[own_columns(N, kSlices) / 2]) {
    constexpr int kEights = N / 8, kOwn = own_columns(N, kSlices) / 8;
    const std::uint32_t at = passage + threadIdx.x % 128 * 16;
#pragma unroll
    for (int j = 0; j < kEights; ++j) {
        store_four(at + (slice * kEights + j) * 2048, sums[4 * j], sums[4 * j + 1], sums[4 * j + 2], sums[4 * j + 3]);
    }
    named_barrier<2, kThreads>();
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
        if (s >= slices || (kOwn * kSlices > kEights && slice * kOwn >= kEights)) break;
#pragma unroll
        for (int j = 0; j < kOwn; ++j) {
            const uint4 v = load_shared4(at + (s * kEights + slice * kOwn + j) * 2048);
            total[4 * j] = __fadd_rn(total[4 * j], __uint_as_float(v.x));
            total[4 * j + 1] = __fadd_rn(total[4 * j + 1], __uint_as_float(v.y));
            total[4 * j + 2] = __fadd_rn(total[4 * j + 2], __uint_as_float(v.z));
            total[4 * j + 3] = __fadd_rn(total[4 * j + 3], __uint_as_float(v.w));
        }
    }
    named_barrier<2, kThreads>();
}

template <QuantType E, int kPanels, int kSlices, int N>
__global__ void __launch_bounds__(WgmmaGroups<kPanels, kSlices>::kThreads, 1)
    mixed_wgmma(const __grid_constant__ MixedArgs args) {
    using Groups = WgmmaGroups<kPanels, kSlices>;
    using Tile = MixedTile<E, kPanels, N, kSlices>;
    using Image = OperandImage<E>;
    constexpr int kWarps = Groups::kWarps, kSums = N / 2;
    constexpr int kOwn = own_columns(N, kSlices), kOwners = N / kOwn;  // rows of an owner, and owners of a panel pair
    constexpr int kOwnerWarps = kWarps / kSlices * kOwners;
    constexpr bool kTwo = N < 64 || (N == 64 && Groups::kRegisters >= 160);
    static_assert(kOwn % 8 == 0 && kOwners <= kSlices);
    extern __shared__ __align__(128) char memory[];
    const std::uint32_t shared = shared_address(memory);
    allow_successor();
    const auto warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    start_stages<E, kWarps>(args, shared, warp, lane);
    __syncthreads();
    if (warp >= kWarps) {
        if constexpr (kHasWgmma) asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kProducerRegisters));
        produce_stages<E, kPanels, N, kSlices>(args, shared, warp - kWarps);
        return;
    }
    if constexpr (kHasWgmma) asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Groups::kRegisters));
    await_predecessors();
    // Warpgroups: slices fastest, then panels.
    const int group = warp / 4, slice = group % kSlices;
    const int pair = group / kSlices, panel_warp = pair * 2 + warp % 4 / 2, tile = warp % 2;
    const std::uint32_t passage = shared + Tile::kPassageAt + pair * (kSlices * N * 64 * 4);
    [[maybe_unused]] const SharedTotal shared_total(shared + Tile::kPassageAt, group, N / 8);
    const bool owns = kOwners == kSlices || slice < kOwners;
    const int owner_warp = kOwners == kSlices ? warp : owns ? (pair * kOwners + slice) * 4 + warp % 4 : kOwnerWarps;
    TileBlocks<E> weights(shared, tile, lane);
    int slot = 0;
    std::uint32_t parity = 0;
#pragma unroll 1
    for (int number = static_cast<int>(blockIdx.x); number < args.plan.units; number += static_cast<int>(gridDim.x)) {
        const MixedUnit<kPanels, N> unit(args, number);
        const int row = 8 * unit.eight + slice * kOwn;
        float total[kOwn / 2];
        if constexpr (Tile::kTotalShared) {
#pragma unroll
            for (int j = 0; j < N / 8; ++j) shared_total.set(j, {});
        } else {
#pragma unroll
            for (int i = 0; i < kOwn / 2; ++i) total[i] = 0.0f;
        }
        const int count = unit.blocks.count;
#pragma unroll 1
        for (int w = 0; w < min(gemv_warps(E), count); w += kSlices) {
            float sums[kSums];
#pragma unroll
            for (int i = 0; i < kSums; ++i) sums[i] = 0.0f;
#pragma unroll 1
            for (int first = w; first < count; first += gemv_warps(E)) {
                mbarrier_wait(shared + 16 * slot, parity);
                const std::uint32_t stage = shared + Tile::kStagesAt + slot * Tile::kStageBytes;
                const std::uint32_t images = stage + Tile::kOperandsAt + slice * Tile::kImagesOfSlice;
                // The last stage of a round may lack blocks of the later slices.
                if (kSlices == 1 || first + slice < count) {
                    // Panels and rows past the last are whatever the stage held; their sums go nowhere.
                    weights.template multiply<N, kTwo>(stage + panel_warp * kSlices * Tile::kWeightBytes,
                                                       unit.blocks.first + first + slice, slice, images, sums);
                    if (first + slice + gemv_warps(E) >= count) {
                        // The slice ends. Product and sum are rounded apart, as where one warp leaves the product and
                        // another adds it.
#pragma unroll
                        for (int j = 0; j < kSums / 4; ++j) {
                            std::uint32_t x, y;
                            load_shared2(x, y, images + j * Image::kBytes + Image::kBackAt + lane % 4 * 8);
                            [[maybe_unused]] float kept[4];
                            if constexpr (Tile::kTotalShared) shared_total.get(j, kept);
#pragma unroll
                            for (int i = 0; i < 4; ++i) {
                                const float product = __fmul_rn(sums[4 * j + i], __uint_as_float(i % 2 == 0 ? x : y));
                                if constexpr (Tile::kTotalShared) {
                                    kept[i] = __fadd_rn(kept[i], product);
                                } else if constexpr (kSlices == 1) {
                                    total[4 * j + i] = __fadd_rn(total[4 * j + i], product);
                                } else {
                                    sums[4 * j + i] = product;
                                }
                            }
                            if constexpr (Tile::kTotalShared) shared_total.set(j, kept);
                        }
                    }
                }
                mbarrier_arrive_warp(shared + 16 * slot + 8);
                if (++slot == args.plan.stages) {
                    slot = 0;
                    parity ^= 1;
                }
            }
            if constexpr (kSlices > 1)
                add_slices<kSlices, N, 32 * kWarps>(passage, slice, min(kSlices, count - w), sums, total);
        }
        const auto finish = [&](auto& sums_of, int first_row) {
            float factors[(sizeof sums_of / 16 * 8 + 31) / 32];
            norm_factors<E>(args, first_row, lane, factors);
            if (panel_warp >= unit.panels || first_row >= args.rows) return;
            with_epilogue(args.op.epilogue.kind, [&](auto kind) {
                finish_sums<kind>(args, sums_of, factors, unit.panel + panel_warp, tile, first_row, lane);
            });
        };
        if constexpr (Tile::kTotalShared) {
            constexpr int kEights = 4;  // at a time
#pragma unroll 1
            for (int first = 0; first < N / 8; first += kEights) {
                float sums_of[1][kEights][4];
#pragma unroll
                for (int j = 0; j < kEights; ++j) shared_total.get(first + j, sums_of[0][j]);
                finish(sums_of, row + 8 * first);
            }
        } else {
            float(&sums_of)[1][kOwn / 8][4] = reinterpret_cast<float(&)[1][kOwn / 8][4]>(total);
            if (args.op.split > 1 && !add_parts<kWarps, kOwnerWarps>(args, sums_of, unit.tile, unit.part, owner_warp,
                                                                     lane, shared + kMixedFlagAt))
                continue;
            if (owns) finish(sums_of, row);
        }
    }
}

// One file per quantisation type instantiates this. Attributes of a kernel are set once per device.
template <QuantType E>
void launch_mixed_as(const OperandCall& operands, const MixedArgs& args, const DeviceInfo& device,
                     cudaStream_t stream) {
    const int slices = operands.op.split * gemv_warps(E);
    launch_dependent("operands", make_operands<E>,
                     dim3(static_cast<unsigned>(operands.eights),
                          static_cast<unsigned>((slices + operand_warps(E) - 1) / operand_warps(E))),
                     32 * operand_warps(E), 0, stream, operands);
    visit_mixed_tiles<E>([&](auto panels, auto slices_at_once, auto columns) {
        const MixedPlan& plan = args.plan;
        if (plan.panels != panels || plan.slices != slices_at_once || plan.columns != columns) return;
        const auto kernel = mixed_wgmma<E, panels, slices_at_once, columns>;
        static std::atomic<std::uint64_t> prepared = 0;
        const std::uint64_t bit = std::uint64_t{1} << device.index % 64;
        if ((prepared.load() & bit) == 0) {
            cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                            static_cast<int>(device.shared_bytes)),
                       "cannot have the shared memory");
            cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                                            cudaSharedmemCarveoutMaxShared),
                       "cannot choose the division of memory");
            prepared |= bit;
        }
        launch_dependent("mixed_gemm", kernel, dim3(static_cast<unsigned>(std::min(plan.units, device.processors))),
                         WgmmaGroups<panels, slices_at_once>::kThreads, plan.shared_bytes, stream, args);
    });
}

}  // namespace foresay::kernels::cuda
