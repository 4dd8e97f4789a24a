// Prefill rows sorted by expert, and as images (grouped.h, images.cuh). The products are in sm90a/.

#include "kernels/cuda/experts/grouped.h"

#include <cuda_fp16.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/images.cuh"
#include "kernels/cuda/prefill/dequantize.h"
#include "kernels/quant/visit.h"

namespace foresay::kernels::cuda {

#ifdef FORESAY_HAVE_SM90A
// Of sm90a/grouped_wgmma.cuh; instantiated in files of types.
template <QuantType E>
void launch_grouped_as(cudaStream_t stream, const GroupedCall& call);
#endif

namespace {

constexpr int kGroupThreads = 1024;  // of launch_groups(): one per expert
static_assert(kMaxExperts <= kGroupThreads);
constexpr int kGroupEights = kGroupRows / 8;

// How the eights of an expert are divided among its groups: as evenly as can be, the larger ones first.
struct GroupSplit {
    int groups, each, more;  // the first `more` groups have one eight more than `each`
    __device__ explicit GroupSplit(int eights)
        : groups((eights + kGroupEights - 1) / kGroupEights),
          each(groups > 0 ? eights / groups : 0),
          more(eights - groups * each) {}
    __device__ int first_eight(int group) const { return group * each + min(group, more); }
    __device__ int eights(int group) const { return each + (group < more ? 1 : 0); }
    __device__ int group_of(int eight) const {
        const int large = more * (each + 1);
        return eight < large ? eight / (each + 1) : more + (eight - large) / each;
    }
};

// The sum of `value` over the threads before this one, and over all in `total`. `parts`: 32 words of shared memory.
__device__ int sum_before(int value, std::int32_t* parts, int& total) {
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    int up_to = value;
#pragma unroll
    for (int offset = 1; offset < 32; offset *= 2) {
        const int other = __shfl_up_sync(~0u, up_to, offset);
        if (lane >= offset) up_to += other;
    }
    if (lane == 31) parts[warp] = up_to;
    __syncthreads();
    int before = 0;
    total = 0;
    for (int w = 0; w < kGroupThreads / 32; ++w) {
        before += w < warp ? parts[w] : 0;
        total += parts[w];
    }
    __syncthreads();
    return before + up_to - value;
}

// Every CTA knows where each expert begins, and places its own slots. The first one writes the groups.
__global__ void __launch_bounds__(kGroupThreads) make_groups(const GroupsCall c) {
    __shared__ std::int32_t parts[32], counts[kGroupThreads], first[kGroupThreads];
    allow_successor();
    await_predecessors();
    const auto e = static_cast<int>(threadIdx.x);
    const int slot = static_cast<int>(blockIdx.x) * kGroupThreads + e;
    int expert = 0, rank = 0;
    bool exists = false;
    if (slot < c.slots) {
        const int chosen = __ldcg(c.to.choice + slot);
        exists = c.own.has(chosen);
        if (exists) {
            expert = chosen - c.own.first;
            rank = __ldcg(c.to.rank + slot);
        }
    }
    const int count = e < c.own.count ? __ldcg(c.to.counts + e) : 0;
    const int eights = (count + 7) / 8;
    int all_eights, all_groups;
    const int first_eight = sum_before(eights, parts, all_eights);
    const GroupSplit own(eights);
    const int first_group = sum_before(own.groups, parts, all_groups);
    counts[e] = count;
    first[e] = first_eight;
    __syncthreads();
    if (blockIdx.x == 0) {
        for (int g = 0; g < own.groups; ++g) {
            const int from = 8 * own.first_eight(g);
            c.to.groups[first_group + g] = {e, 8 * first_eight + from, min(count - from, 8 * own.eights(g)),
                                            own.groups == 1 ? 1 : 0};
        }
        if (e == 0) {
            c.to.totals[0] = all_groups;
            c.to.totals[1] = all_eights;
        }
    }
    if (!exists) return;
    c.to.order[8 * first[expert] + rank] = slot;
    if (rank % 8 != 0) return;
    const GroupSplit split((counts[expert] + 7) / 8);
    const int group = split.group_of(rank / 8);
    // How many of the eight's positions are slots, in the upper half.
    c.to.eights[first[expert] + rank / 8] = {8 * (first[expert] + split.first_eight(group)),
                                             split.eights(group) | min(8, counts[expert] - rank) << 16};
}

// A CTA per eight of positions.
__global__ void __launch_bounds__(32 * kImageWarps) make_images(const __grid_constant__ ImagesCall c) {
    __shared__ __align__(16) std::uint8_t passage[kPassageBytes];
    allow_successor();
    await_predecessors();
    if (static_cast<int>(blockIdx.x) < __ldcg(c.to.totals + 1)) put_images(c, passage);
}
__global__ void __launch_bounds__(32 * kImageWarps) make_ordered_images(const __grid_constant__ ImagesCall c) {
    extern __shared__ __align__(16) std::uint8_t rows[];
    allow_successor();
    await_predecessors();
    if (static_cast<int>(blockIdx.x) < __ldcg(c.to.totals + 1)) put_ordered_images(c, rows);
}

}  // namespace

bool runs_grouped([[maybe_unused]] const DeviceInfo& device, [[maybe_unused]] QuantType quant_type) {
#ifdef FORESAY_HAVE_SM90A
    return device.capability == 90 && quant_type != QuantType::f32;
#else
    return false;
#endif
}

int grouped_shift(const Panels::Part& part) {
    const int shift = dequantize_shift(part);
    switch (part.quant_type) {
        case QuantType::bf16:
        case QuantType::packed:  // computed in float32
            return shift;
        case QuantType::mxfp4:
            // Codes are 2^-14 times their numbers, and what brings them back is part of their scale.
            return shift - 11;
        default:
            // A factor of scales that is a float16 number itself.
            return std::clamp(shift, -14, 15);
    }
}

void launch_groups(cudaStream_t stream, const GroupsCall& call) {
    const dim3 grid(static_cast<unsigned>((call.slots + kGroupThreads - 1) / kGroupThreads));
    launch_overlapping("groups of experts", make_groups, grid, kGroupThreads, 0, stream, call);
}

void launch_images(cudaStream_t stream, const ImagesCall& call) {
    const dim3 grid(static_cast<unsigned>(most_eights(call.slots, call.experts)));
    const int ordered = ordered_bytes(call.stride);
    if (call.order != nullptr && static_cast<std::size_t>(ordered) <= DeviceContext::current().info().shared_bytes) {
        launch_overlapping("inputs of experts", make_ordered_images, grid, 32 * kImageWarps, ordered, stream, call);
        return;
    }
    launch_overlapping("inputs of experts", make_images, grid, 32 * kImageWarps, 0, stream, call);
}

void launch_grouped([[maybe_unused]] cudaStream_t stream, [[maybe_unused]] const GroupedCall& call) {
#ifdef FORESAY_HAVE_SM90A
    if (runs_grouped(DeviceContext::current().info(), call.products.quant_type)) {
        if (call.products.quant_type == QuantType::packed) {
            return launch_grouped_as<QuantType::packed>(stream, call);
        }
        return visit_quant_type(call.products.quant_type, [&](auto q) {
            constexpr QuantType kType = decltype(q)::kQuantType;
            if constexpr (kType != QuantType::f32) launch_grouped_as<kType>(stream, call);
        });
    }
#endif
    bug("a quantisation type without grouped products");
}

}  // namespace foresay::kernels::cuda
