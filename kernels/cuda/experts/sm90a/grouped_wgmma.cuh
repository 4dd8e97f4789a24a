// kernels/cuda/experts/sm90a/grouped_wgmma.cuh: the products of a group of slots (grouped.h) by the matrix instruction
// of a warpgroup.
//
// Grid:     a CTA per multiprocessor; each takes items in turn.
// Item:     a group and kGroupPanels panels of its expert.
// Warps:    four warpgroups multiply, each 64 packed rows (two panels) with all rows of the group: operand A is
//           unpacked in registers, operand B lies in the stage. One more warp copies.
// Stage:    of the ring: GroupStage::kInputs inputs of kGroupPanels panels, then of the group's images.
//
//   producer   global weights, images --cp.async.bulk--> stage
//   a warp     stage --unpack--> float16 operands --wgmma--> sums --factors, bias, activation--> global memory
//
// Packed:   rows whose layout is data have stages of two blocks of 64 inputs (group_packed.cuh), and each expert a
//           factor, which the sums are multiplied by.
// Waits:    stage, full: the copies' bytes. Stage, empty: all multiplying warps. Both are mbarriers.
// Overlap:  up to 64 rows a warpgroup unpacks 64 inputs while the tensor cores multiply the 64 before; of more rows it
//           has no registers for that, and warpgroups overlap each other.
#pragma once

#include <algorithm>

#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/experts/gated.cuh"
#include "kernels/cuda/experts/grouped.h"
#include "kernels/cuda/experts/sm90a/group_packed.cuh"
#include "kernels/cuda/experts/sm90a/group_weights.cuh"

namespace foresay::kernels::cuda {

inline constexpr int kGroupPanels = 8, kGroupWarps = 16, kGroupThreads = 32 * (kGroupWarps + 1);
inline constexpr int kMostGroupStages = 8;
inline constexpr int kGroupRingAt = 16 * kMostGroupStages;  // after the barriers

struct GroupedArgs {
    ProductsCall call;
    std::int32_t blocks_of_panels = 0;  // of an expert: kGroupPanels panels each
    std::int32_t stages = 0, stage_bytes = 0;
    float times = 1.0f, back = 1.0f;  // 2^shift and its inverse
};

template <QuantType E>
struct GroupStage {
    static constexpr BlockFormat kFormat = block_format(E);
    // A block of K-quants; of wider types less, so that several stages have room.
    static constexpr int kInputs = kFormat.bytes >= 4096 && kFormat.inputs == 64  ? 64
                                   : kFormat.bytes > 2000 && kFormat.inputs == 64 ? 128
                                                                                  : 256;
    static constexpr int kBlocks = kInputs / kFormat.inputs;
    static constexpr int kPanelBytes = kBlocks * kFormat.bytes;
    static constexpr int kImagesAt = kGroupPanels * kPanelBytes;
};

template <>
struct GroupStage<QuantType::packed> {
    static constexpr int kInputs = 128, kBlocks = 2;
};
template <QuantType E>
FORESAY_HOST_DEVICE constexpr int panel_bytes_of_stage(const ProductsCall& call) {
    if constexpr (E == QuantType::packed) {
        return call.packed.unit_bytes;
    } else {
        return GroupStage<E>::kPanelBytes;
    }
}
template <QuantType E>
FORESAY_HOST_DEVICE constexpr int bytes_of_stage(const ProductsCall& call, int rows) {
    return (kGroupPanels * panel_bytes_of_stage<E>(call) + GroupStage<E>::kInputs * rows * 2 + 127) / 128 * 128;
}
// Packed rows' header lies before the ring.
constexpr int group_ring_at(QuantType e) { return kGroupRingAt + (e == QuantType::packed ? 256 : 0); }

__device__ __forceinline__ std::uint32_t full_barrier(std::uint32_t shared, int stage) { return shared + 16 * stage; }
__device__ __forceinline__ std::uint32_t empty_barrier(std::uint32_t shared, int stage) {
    return shared + 16 * stage + 8;
}

// Where the producer finds the blocks of a panel.
template <QuantType E>
class GroupBlocks {
public:
    __device__ GroupBlocks(const ProductsCall& call, std::uint32_t /*header*/) : blocks_(call.blocks) {}
    __device__ std::int64_t panel_bytes() const { return blocks_ * static_cast<std::int64_t>(block_format(E).bytes); }
    __device__ std::uint32_t bytes(int first, int end) const { return (end - first) * block_format(E).bytes; }

private:
    std::int32_t blocks_;
};
template <>
class GroupBlocks<QuantType::packed> {
public:
    __device__ GroupBlocks(const ProductsCall& /*call*/, std::uint32_t header) : header_(header) {}
    __device__ std::int64_t panel_bytes() const { return header_.panel_bytes(); }
    __device__ std::uint32_t bytes(int first, int end) const {
        return static_cast<std::uint32_t>(header_.place(first, end).y);
    }

private:
    SharedHeader header_;
};

// expert, first, count, alone
__device__ __forceinline__ int4 group_at(const GroupedArgs& args, int group) {
    return __ldcg(reinterpret_cast<const int4*>(args.call.with.groups + group));
}
// The same of lane 0, so that the compiler knows that all lanes have one value and keeps wgmma asynchronous.
__device__ __forceinline__ int uniform(int value) { return __shfl_sync(~0u, value, 0); }

// One lane.
template <QuantType E>
__device__ __forceinline__ void copy_groups(const GroupedArgs& args, std::uint32_t shared, int items) {
#if __CUDA_ARCH__ >= 900
    using Stage = GroupStage<E>;
    constexpr int kInputs = Stage::kInputs / Stage::kBlocks;  // of a block
    const ProductsCall& c = args.call;
    const GroupBlocks<E> layout(c, shared + kGroupRingAt);
    const std::int64_t panel_bytes = layout.panel_bytes();
    const std::int64_t image_bytes = static_cast<std::int64_t>(c.blocks) * kInputs * 2;  // of a position
    int slot = 0;
    std::uint32_t parity = 1;
    for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
        const int number = item / args.blocks_of_panels;
        const int first_panel = (item - number * args.blocks_of_panels) * kGroupPanels;
        const int4 group = group_at(args, number);
        const int panels = min(kGroupPanels, c.panel_count - first_panel), eights = (group.z + 7) / 8;
        const std::uint8_t* weights = c.panels + group.x * c.expert_bytes + first_panel * panel_bytes;
        const std::uint8_t* images = c.with.images + group.y * image_bytes;
        // What no other group reads leaves L2 first.
        constexpr std::uint64_t evict_first = 0x12f0000000000000, evict_normal = 0x1000000000000000;
        const std::uint64_t policy = group.w != 0 ? evict_first : evict_normal;
        for (int block = 0; block < c.blocks; block += Stage::kBlocks) {
            const int blocks = min(Stage::kBlocks, c.blocks - block);
            const std::uint32_t piece = layout.bytes(block, block + blocks);
            const std::uint32_t image_piece = blocks * (kInputs / 8) * 128 * eights;
            const std::uint32_t full = full_barrier(shared, slot);
            const std::uint32_t stage = shared + group_ring_at(E) + slot * args.stage_bytes;
            mbarrier_wait(empty_barrier(shared, slot), parity);
            asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full),
                         "r"(panels * piece + image_piece)
                         : "memory");
            asm volatile(
                "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                    stage + kGroupPanels * panel_bytes_of_stage<E>(c)),
                "l"(images), "r"(image_piece), "r"(full)
                : "memory");
            for (int p = 0; p < panels; ++p) {
                asm volatile(
                    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, "
                    "[%3], %4;" ::"r"(stage + p * panel_bytes_of_stage<E>(c)),
                    "l"(weights + p * panel_bytes), "r"(piece), "r"(full), "l"(policy)
                    : "memory");
            }
            weights += piece;
            images += image_piece;
            if (++slot == args.stages) {
                slot = 0;
                parity ^= 1;
            }
        }
    }
#endif
}

// Where a multiplying warp is in the ring.
struct RingPlace {
    int slot = 0;
    std::uint32_t parity = 0;

    // Releases the stage.
    __device__ __forceinline__ void next(std::uint32_t shared, int stages) {
        mbarrier_arrive_warp(empty_barrier(shared, slot));
        if (++slot == stages) {
            slot = 0;
            parity ^= 1;
        }
    }
};

template <int kLeft>
__device__ __forceinline__ void keep_operands(StepOperands& a) {
    wgmma_wait_for<kLeft>();
#pragma unroll
    for (int i = 0; i < 4; ++i) keep_registers(a[i]);
}

// Begins the products of 64 inputs. `step`: of 16 inputs of all eights, in the units of a descriptor.
template <int kSums>
__device__ __forceinline__ void multiply_step(float (&sums)[kSums], StepOperands& x, std::uint64_t images,
                                              std::uint32_t step) {
#pragma unroll
    for (int i = 0; i < 4; ++i) keep_registers(x[i]);
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < 4; ++i) wgmma<true>(sums, x[i], images + i * step);
    wgmma_commit();
}

// The sums of an item: all stages of K.
template <QuantType E, int N>
__device__ __forceinline__ void multiply_stages(const GroupedArgs& args, std::uint32_t shared, RingPlace& place,
                                                bool has_panels, int eights, int warp, int lane, float (&sums)[N / 2]) {
    using Stage = GroupStage<E>;
    constexpr int kSubs = Stage::kFormat.inputs / 64;  // of a block
    constexpr bool kAhead = N <= 64;
    const int tile = warp % 2;
#pragma unroll
    for (int i = 0; i < N / 2; ++i) sums[i] = 0.0f;
    const std::uint32_t step = eights * 16;
    StepOperands a[kAhead ? 2 : 1];
    const auto multiply = [&](StepOperands& x, std::uint64_t images) { multiply_step(sums, x, images, step); };
    for (int block = 0; block < args.call.blocks; block += Stage::kBlocks) {
        const int blocks = min(Stage::kBlocks, args.call.blocks - block);
        mbarrier_wait(full_barrier(shared, place.slot), place.parity);
        if (has_panels) {
            const std::uint32_t stage = shared + kGroupRingAt + place.slot * args.stage_bytes;
            const std::uint32_t weights = stage + warp / 2 * Stage::kPanelBytes;
            std::uint64_t images = wgmma_operand(stage + Stage::kImagesAt, eights * 128, 128);
            if constexpr (kSubs == 4) {
                const GroupWeights<E> from(weights, tile, lane, args.times);
#pragma unroll
                for (int sub = 0; sub < 4; ++sub) {
                    StepOperands& x = a[kAhead ? sub % 2 : 0];
                    from.unpack(sub, x);
                    multiply(x, images + sub * 4 * step);
                    if (!kAhead) {
                        keep_operands<0>(x);
                    } else if (sub > 0) {
                        keep_operands<1>(a[kAhead ? (sub + 1) % 2 : 0]);
                    }
                }
                keep_operands<0>(a[kAhead ? 1 : 0]);
            } else if constexpr (kAhead && Stage::kBlocks > 1) {
#pragma unroll 1
                for (int b = 0; b + 1 < blocks; b += 2) {
                    const std::uint32_t at = weights + b * Stage::kFormat.bytes;
                    GroupWeights<E>(at, tile, lane, args.times).unpack(0, a[0]);
                    multiply(a[0], images);
                    GroupWeights<E>(at + Stage::kFormat.bytes, tile, lane, args.times).unpack(0, a[1]);
                    multiply(a[1], images + 4 * step);
                    keep_operands<0>(a[0]);
                    keep_operands<0>(a[1]);
                    images += 8 * step;
                }
                if (blocks % 2 != 0) {
                    GroupWeights<E>(weights + (blocks - 1) * Stage::kFormat.bytes, tile, lane, args.times)
                        .unpack(0, a[0]);
                    multiply(a[0], images);
                    keep_operands<0>(a[0]);
                }
            } else {
#pragma unroll 1
                for (int b = 0; b < blocks; ++b) {
                    GroupWeights<E>(weights + b * Stage::kFormat.bytes, tile, lane, args.times).unpack(0, a[0]);
                    multiply(a[0], images);
                    keep_operands<0>(a[0]);
                    images += 4 * step;
                }
            }
        }
        place.next(shared, args.stages);
    }
    keep_registers(sums);
}

template <QuantType E, int N>
requires(E == QuantType::packed) __device__ __forceinline__
    void multiply_stages(const GroupedArgs& args, std::uint32_t shared, RingPlace& place, bool has_panels, int eights,
                         int warp, int lane, float (&sums)[N / 2]) {
    const ProductsCall& c = args.call;
    const SharedHeader header(shared + kGroupRingAt);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) sums[i] = 0.0f;
    const std::uint32_t step = eights * 16;
    for (int block = 0; block < c.blocks; block += 2) {
        mbarrier_wait(full_barrier(shared, place.slot), place.parity);
        if (has_panels) {
            const std::uint32_t stage = shared + group_ring_at(E) + place.slot * args.stage_bytes;
            std::uint32_t weights = stage + warp / 2 * c.packed.unit_bytes;
            std::uint64_t images = wgmma_operand(stage + kGroupPanels * c.packed.unit_bytes, eights * 128, 128);
#pragma unroll 1
            for (int b = block; b < min(block + 2, c.blocks); ++b) {
                const PackedRun run = header.run_with(b);
                visit_code_kind(run.kind, [&](auto kind) {
                    StepOperands a;
                    unpack_packed<kind.value>(SharedBlock{weights}, header, run, warp % 2, lane, args.times, a);
                    multiply_step(sums, a, images, step);
                    keep_operands<0>(a);
                });
                weights += run.bytes();
                images += 4 * step;
            }
        }
        place.next(shared, args.stages);
    }
    keep_registers(sums);
}

template <QuantType E, int N>
__device__ __forceinline__ void multiply_group(const GroupedArgs& args, std::uint32_t shared, RingPlace& place,
                                               const int4& group, int first_panel, int warp, int lane) {
    const ProductsCall& c = args.call;
    float sums[N / 2];
    const int panel = first_panel + warp / 2;
    // The products of one warpgroup; a panel that does not exist yields sums that nothing reads.
    const bool has_panels = first_panel + warp / 4 * 2 < c.panel_count;
    multiply_stages<E, N>(args, shared, place, has_panels, (group.z + 7) / 8, warp, lane, sums);
    if (panel >= c.panel_count) return;
    float2 factor = {1.0f, 1.0f};  // of even and odd packed rows
    if constexpr (E == QuantType::packed) factor = __ldg(reinterpret_cast<const float2*>(c.packed.factors) + group.x);
    // Neighbouring lanes have neighbouring packed rows; they exchange, so that each has a pair of them of one slot.
    const int odd = lane / 4 % 2, packed = panel * 32 + warp % 2 * 16 + lane / 8 * 2;
    float2 bias[2] = {};
    if (c.bias != nullptr) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const int at = packed + 8 * h;
            const float* const from = c.bias + static_cast<std::int64_t>(group.x) * c.rows + at;
            if (at < c.rows) bias[h].x = __ldg(from);
            if (at + 1 < c.rows) bias[h].y = __ldg(from + 1);
        }
    }
#pragma unroll
    for (int j = 0; j < N / 8; ++j) {
        const int column = 8 * j + lane % 4 * 2 + odd;
        const bool exists = column < group.z;
        const std::int64_t slot = exists ? __ldcg(c.with.order + group.y + column) : 0;
        const float back = exists ? __ldcg(c.with.back + group.y + column) : 0.0f;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float one = sums[4 * j + 2 * h], two = sums[4 * j + 2 * h + 1];
            const float got = __shfl_xor_sync(~0u, odd ? one : two, 4);
            const int at = packed + 8 * h;
            if (!exists || at >= c.rows) continue;
            float x = (odd ? got : one) * args.back * back, y = (odd ? two : got) * args.back * back;
            if constexpr (E == QuantType::packed) {
                x *= factor.x;
                y *= factor.y;
            }
            if (c.bias != nullptr) {
                x += bias[h].x;
                y += bias[h].y;
            }
            if (c.gate_up) {
                c.out[slot * (c.rows / 2) + at / 2] = gated(c.activation, c.limit, x, y);
            } else {
                float* const to = c.out + slot * c.rows + at;
                if (c.rows % 2 == 0) {
                    *reinterpret_cast<float2*>(to) = {x, y};
                } else {
                    to[0] = x;
                    if (at + 1 < c.rows) to[1] = y;
                }
            }
        }
    }
}

template <QuantType E>
__global__ void __launch_bounds__(kGroupThreads, 1) multiply_groups(const __grid_constant__ GroupedArgs args) {
    extern __shared__ __align__(128) char memory[];
    const std::uint32_t shared = shared_address(memory);
    const int warp = uniform(static_cast<int>(threadIdx.x / 32)), lane = static_cast<int>(threadIdx.x % 32);
    if (warp == kGroupWarps) {
        if (lane < args.stages) {
            mbarrier_init(full_barrier(shared, lane), 1);
            mbarrier_init(empty_barrier(shared, lane), kGroupWarps * kWarpArrivals);
        }
        copy_barriers_ready();
    }
    if constexpr (E == QuantType::packed) {
        const auto word = static_cast<int>(threadIdx.x);
        if (word < SharedHeader::kWords) {
            SharedHeader(shared + kGroupRingAt).put(word, SharedHeader::word(args.call.packed.header, word));
        }
    }
    __syncthreads();
    allow_successor();
    await_predecessors();
    const int items = uniform(__ldcg(args.call.with.totals)) * args.blocks_of_panels;
    if (warp == kGroupWarps) {
        if (elect_one()) copy_groups<E>(args, shared, items);
        return;
    }
    RingPlace place;
    for (int item = static_cast<int>(blockIdx.x); item < items; item += static_cast<int>(gridDim.x)) {
        const int number = item / args.blocks_of_panels;
        const int first_panel = (item - number * args.blocks_of_panels) * kGroupPanels;
        int4 group = group_at(args, number);
        group.z = uniform(group.z);
        if (group.z <= 16) {
            multiply_group<E, 16>(args, shared, place, group, first_panel, warp, lane);
        } else if (group.z <= 32) {
            multiply_group<E, 32>(args, shared, place, group, first_panel, warp, lane);
        } else if (group.z <= 48) {
            multiply_group<E, 48>(args, shared, place, group, first_panel, warp, lane);
        } else {
            multiply_group<E, 64>(args, shared, place, group, first_panel, warp, lane);
        }
    }
}

template <QuantType E>
void launch_grouped_as(cudaStream_t stream, const GroupedCall& call) {
    GroupedArgs args;
    args.call = call.products;
    const ProductsCall& c = call.products;
    args.blocks_of_panels = (c.panel_count + kGroupPanels - 1) / kGroupPanels;
    args.stage_bytes = bytes_of_stage<E>(c, kGroupRows);
    args.stages = std::min((c.shared_bytes - 1024 - group_ring_at(E)) / args.stage_bytes, kMostGroupStages);
    args.times = std::ldexp(1.0f, call.shift);
    args.back = std::ldexp(1.0f, -call.shift);
    const std::int64_t items = most_groups(c.slots, c.experts) * args.blocks_of_panels;
    launch_overlapping("products of groups of rows", multiply_groups<E>,
                       dim3(static_cast<unsigned>(std::min<std::int64_t>(items, c.processors))), kGroupThreads,
                       group_ring_at(E) + args.stages * args.stage_bytes, stream, args);
}

}  // namespace foresay::kernels::cuda
