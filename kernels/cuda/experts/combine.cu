// The sum of a row's experts, by ascending id, and what becomes of it: post norm, then the branch or x. With a post
// norm a CTA has a whole row; without one, several share it. Before it, where devices share the experts: slots from
// other devices, a CTA per slot.

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/block_sums.cuh"

namespace foresay::kernels::cuda {
namespace {

constexpr int kThreads = 256;

// Value i of the sum of row t, by ascending expert.
__device__ inline float sum_of_slots(const CombineCall& c, std::int64_t t, int i) {
    const float* const weight = c.with.weight + t * c.used;
    const float* const out = c.with.out + t * c.used * c.width + i;
    float y = 0.0f;
#pragma unroll 8
    for (int k = 0; k < c.used; ++k) {
        y = fmaf(__ldcg(weight + k), __ldcg(out + static_cast<std::int64_t>(k) * c.width), y);
    }
    return y;
}

__device__ inline void add_to_row(const CombineCall& c, std::int64_t t, int i, float y) {
    if (c.keep_branch) {
        c.with.branch[t * c.width + i] = y;
        return;
    }
    float* const x = c.x + t * c.width + i;
    *x = c.stream_scale * fmaf(c.scale, y, __ldcg(x));
}

// With a post norm the row lies in shared memory until its squares are known.
__global__ void __launch_bounds__(kThreads) combine(const CombineCall c) {
    extern __shared__ float row[];
    __shared__ float parts[32];
    allow_successor();
    await_predecessors();
    const std::int64_t t = blockIdx.y;
    for (int i = static_cast<int>(blockIdx.x * kThreads + threadIdx.x); i < c.width;
         i += static_cast<int>(gridDim.x) * kThreads) {
        const float y = sum_of_slots(c, t, i);
        if (c.post_norm.weight == nullptr) {
            add_to_row(c, t, i, y);
        } else {
            row[i] = y;
        }
    }
    if (c.post_norm.weight == nullptr) return;
    __syncthreads();
    const float2 moments = row_moments(c.post_norm.layer, c.width, parts, [&](int i) { return row[i]; });
    const float2 stats = {moments.x, 1.0f / sqrtf(moments.y + c.post_norm.eps)};
    for (int i = static_cast<int>(threadIdx.x); i < c.width; i += kThreads) {
        add_to_row(c, t, i, normed_value(c.post_norm, stats, row[i], i));
    }
}

// Reads the memory of other devices, from where the owner's L2 has it.
__global__ void __launch_bounds__(kThreads) take_slots(const TakeSlotsCall c) {
    const auto slot = static_cast<std::int64_t>(blockIdx.x);
    const std::int32_t expert = __ldcg(c.choice + slot);
    const float* from = nullptr;
    for (int i = 0; i < c.count; ++i) {
        if (c.owners[i].experts.has(expert)) from = c.owners[i].out;
    }
    if (from == nullptr) return;
    const auto* const in = reinterpret_cast<const float4*>(from + slot * c.width);
    auto* const out = reinterpret_cast<float4*>(c.out + slot * c.width);
    for (int i = static_cast<int>(threadIdx.x); i < c.width / 4; i += kThreads) out[i] = __ldcg(in + i);
}

__global__ void __launch_bounds__(kThreads)
    clear_slots(const std::int32_t* choice, std::int32_t width, OwnExperts own, float* out) {
    const auto slot = static_cast<std::int64_t>(blockIdx.x);
    if (own.has(__ldcg(choice + slot))) return;
    for (int i = static_cast<int>(threadIdx.x); i < width; i += kThreads) out[slot * width + i] = 0.0f;
}

}  // namespace

void launch_take_slots(cudaStream_t stream, const TakeSlotsCall& call) {
    take_slots<<<static_cast<unsigned>(call.slots), kThreads, 0, stream>>>(call);
    launched("slots of other devices");
}

void launch_clear_slots(cudaStream_t stream, std::int32_t slots, std::int32_t width, OwnExperts own,
                        const ExpertBuffers& with) {
    clear_slots<<<static_cast<unsigned>(slots), kThreads, 0, stream>>>(with.choice, width, own, with.out);
    launched("slots of no expert");
}

void launch_combine(cudaStream_t stream, const CombineCall& call) {
    const bool normed = call.post_norm.weight != nullptr;
    const dim3 grid(normed ? 1 : static_cast<unsigned>((call.width + kThreads - 1) / kThreads),
                    static_cast<unsigned>(call.rows));
    launch_overlapping("sum of experts", combine, grid, kThreads, normed ? call.width * 4 : 0, stream, call);
}

}  // namespace foresay::kernels::cuda
