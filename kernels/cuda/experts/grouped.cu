// Prefill rows sorted by expert, and as images (grouped.h). The products are in sm90a/.

#include "kernels/cuda/experts/grouped.h"

#include <cuda_fp16.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/decode/packed_header.cuh"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/half_pairs.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/device/row_scale.cuh"
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

constexpr int kImageWarps = 8;         // a row each
constexpr int kImageInputs = 1024;     // that pass through shared memory at once
constexpr int kChunkBytes = 128 + 16;  // of 8 inputs x 8 rows, so that lanes are on different banks

// A CTA per eight of positions.
__global__ void __launch_bounds__(32 * kImageWarps) make_images(const ImagesCall c) {
    __shared__ __align__(16) std::uint8_t passage[kImageInputs / 8 * kChunkBytes];
    allow_successor();
    await_predecessors();
    if (static_cast<int>(blockIdx.x) >= __ldcg(c.to.totals + 1)) return;
    const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const int2 eight = __ldcg(reinterpret_cast<const int2*>(c.to.eights + blockIdx.x));
    const int position = 8 * static_cast<int>(blockIdx.x) + warp, eights = eight.y & 0xffff;
    const bool exists = warp < eight.y >> 16;
    const std::int32_t slot = exists ? __ldcg(c.to.order + position) : 0;
    const int source = slot / c.used;
    const float* const x = c.x + static_cast<std::int64_t>(source) * c.inputs;
    const bool normed = c.norm.weight != nullptr;
    const float2 stats = normed && exists ? __ldcg(c.to.stats + source) : float2{0.0f, 1.0f};
    const std::uint16_t* order = nullptr;
    if (c.order != nullptr && exists) {
        order = c.order + static_cast<std::int64_t>(__ldcg(c.to.choice + slot) - c.first_expert) * c.inputs;
    }
    // Weights i .. of all, or those that the order has there.
    const auto weights4 = [&](const float* from, int i) {
        return order == nullptr ? __ldg(reinterpret_cast<const float4*>(from + i)) : gather4(from, order + i);
    };
    const auto input4 = [&](int i) {
        if (!exists || i >= c.inputs) return float4{};
        float4 a = order == nullptr ? __ldcg(reinterpret_cast<const float4*>(x + i)) : gather4(x, order + i);
        if (!normed) return a;
        const float4 weight = weights4(c.norm.weight, i);
        float4 bias = {};
        if (c.norm.bias != nullptr) bias = weights4(c.norm.bias, i);
        a.x = fmaf((a.x - stats.x) * stats.y, weight.x, bias.x);
        a.y = fmaf((a.y - stats.x) * stats.y, weight.y, bias.y);
        a.z = fmaf((a.z - stats.x) * stats.y, weight.z, bias.z);
        a.w = fmaf((a.w - stats.x) * stats.y, weight.w, bias.w);
        return a;
    };
    float most = 0.0f;
#pragma unroll 8
    for (int i = 4 * lane; i < c.inputs; i += 128) most = larger_magnitude(most, input4(i));
    const RowScale<true> row(__reduce_max_sync(~0u, __float_as_uint(most)));
    const float scale = row.up();
    if (lane == 0) c.to.back[position] = row.back();
    std::uint8_t* const image =
        c.to.images + static_cast<std::int64_t>(eight.x) * c.stride * 2 + (8 * blockIdx.x - eight.x) * 16;
    for (int begin = 0; begin < c.stride; begin += kImageInputs) {
        const int here = min(kImageInputs, c.stride - begin);
#pragma unroll 4
        for (int i = 4 * lane; i < here; i += 128) {
            const float4 a = input4(begin + i);
            // Inputs 4 q to 4 q + 3 of 16 are word q of both chunks.
            std::uint8_t* const to = passage + i / 16 * (2 * kChunkBytes) + warp * 16 + lane % 4 * 4;
            *reinterpret_cast<std::uint32_t*>(to) = as_bits(__floats2half2_rn(a.x * scale, a.y * scale));
            *reinterpret_cast<std::uint32_t*>(to + kChunkBytes) = as_bits(__floats2half2_rn(a.z * scale, a.w * scale));
        }
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < here; i += 32 * kImageWarps) {
            const int chunk = i / 8;
            *reinterpret_cast<uint4*>(image + static_cast<std::int64_t>(begin / 8 + chunk) * eights * 128 +
                                      i % 8 * 16) =
                *reinterpret_cast<const uint4*>(passage + chunk * kChunkBytes + i % 8 * 16);
        }
        __syncthreads();
    }
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
