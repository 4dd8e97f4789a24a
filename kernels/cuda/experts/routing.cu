// The choice of experts: scores, the choice of each row (the device's form of kernels/routing.cpp), and the tiles that
// the products read.
//
//   scores     CTA (i, t): a warp for each of four experts, for a row of the batch. Weights of the router depend on no
//              kernel, so a warp asks for them before it waits for its predecessors. With few slots the last CTA that
//              is done goes on with choose_row() for all rows and tile_few(): a counter tells which one that is.
//   choose     many slots: a warp per row.
//   tile_many  many slots: one CTA.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/block_sums.cuh"
#include "kernels/cuda/experts/choose.cuh"
#include "kernels/cuda/experts/experts.h"

namespace foresay::kernels::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kTileThreads = 1024;

// The tiles of any number of slots, by all threads of a CTA; `memory`: many_words() words of shared memory. A thread
// counts the slots of one expert in one stretch of them; neighbouring threads have neighbouring experts, so that they
// read the same choices.
__device__ void tile_many(const RouterCall& c, std::int32_t* memory) {
    const auto threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    const int slots = c.rows * c.used, stretches = max(1, threads / c.experts);
    const int each = (slots + stretches - 1) / stretches;
    std::int32_t* const counts = memory;                          // [stretches, E]
    std::int32_t* const totals = counts + c.experts * stretches;  // [E]
    std::int32_t* const first_tile = totals + c.experts;          // [E + 1]
    auto* const choice = reinterpret_cast<std::uint16_t*>(first_tile + c.experts + 1);
    for (int slot = thread; slot < slots; slot += threads) {
        choice[slot] = static_cast<std::uint16_t>(__ldcg(c.to.choice + slot));
    }
    __syncthreads();
    const auto over_stretches = [&](const auto& body) {
        for (int i = thread; i < c.experts * stretches; i += threads) {
            const int begin = i / c.experts * each;
            body(i, i % c.experts, begin, min(begin + each, slots));
        }
    };
    over_stretches([&](int i, int e, int begin, int end) {
        int count = 0;
        for (int slot = begin; slot < end; ++slot) count += choice[slot] == e ? 1 : 0;
        counts[i] = count;
    });
    __syncthreads();
    // One warp: where each expert's tiles begin. The counts of stretches become places among the expert's slots.
    if (thread < 32) {
        int base = 0;
        for (int e0 = 0; e0 < c.experts; e0 += 32) {
            const int e = e0 + thread;
            int count = 0;
            for (int s = 0; s < stretches && e < c.experts; ++s) {
                const int here = counts[s * c.experts + e];
                counts[s * c.experts + e] = count;
                count += here;
            }
            const int own = (count + kExpertRows - 1) / kExpertRows;
            int up_to = own;
#pragma unroll
            for (int offset = 1; offset < 32; offset *= 2) {
                const int other = __shfl_up_sync(~0u, up_to, offset);
                if (thread >= offset) up_to += other;
            }
            if (e < c.experts) {
                totals[e] = count;
                first_tile[e] = base + up_to - own;
            }
            base += __shfl_sync(~0u, up_to, 31);
        }
        if (thread == 0) *c.to.tile_count = first_tile[c.experts] = base;
    }
    __syncthreads();
    over_stretches([&](int i, int e, int begin, int end) {
        int rank = counts[i];
        for (int slot = begin; slot < end; ++slot) {
            if (choice[slot] != e) continue;
            c.to.tiles[first_tile[e] + rank / kExpertRows].slots[rank % kExpertRows] = slot;
            ++rank;
        }
    });
    for (int e = thread; e < c.experts; e += threads) {
        for (int left = totals[e], tile = first_tile[e]; left > 0; left -= kExpertRows, ++tile) {
            c.to.tiles[tile].expert = e;
            c.to.tiles[tile].count = min(kExpertRows, left);
        }
    }
    const auto most = static_cast<int>(most_tiles(slots, c.experts));
    for (int i = first_tile[c.experts] + thread; i < most; i += threads) c.to.tiles[i].count = 0;
}
constexpr int many_words(const RouterCall& c, int threads) {
    const int stretches = threads / c.experts > 1 ? threads / c.experts : 1;
    return c.experts * stretches + 2 * c.experts + 1 + (c.rows * c.used + 1) / 2;
}

// The score of an expert for row t, as choose_row() wants it.
__device__ inline auto score_in_memory(const RouterCall& c, int t) {
    const float* const scores = c.to.scores + static_cast<std::int64_t>(t) * c.experts;
    return [=](int e) { return __ldcg(scores + e); };
}

// Mean (0 for an RMS norm) and mean square around it of a row, by a warp.
__device__ float2 moments_of(const float* x, int width, bool layer, int lane) {
    float mean = 0.0f, squares = 0.0f;
    if (layer) {
        for (int i = lane; i < width; i += 32) mean += __ldcg(x + i);
        mean = warp_sum(mean) / static_cast<float>(width);
    }
    for (int i = lane; i < width; i += 32) {
        const float deviation = __ldcg(x + i) - mean;
        squares = fmaf(deviation, deviation, squares);
    }
    return {mean, warp_sum(squares) / static_cast<float>(width)};
}

// Grid: (experts / kWarps, rows). A lane has kFours times four inputs at once. `fused`: the last CTA chooses and tiles.
template <int kFours>
__global__ void __launch_bounds__(32 * kWarps) scores(const RouterCall c, bool fused) {
    extern __shared__ float shared[];
    __shared__ bool last;
    allow_successor();
    const int t = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32), e = static_cast<int>(blockIdx.x) * kWarps + warp;
    const float* const weight = c.weight + static_cast<std::int64_t>(min(e, c.experts - 1)) * c.width;
    const float* const x = c.x + static_cast<std::int64_t>(t) * c.width;
    const auto load4 = [&](const float* from, int at) {
        return at < c.width ? __ldg(reinterpret_cast<const float4*>(from + at)) : float4{};
    };
    // An RMS norm is a factor of the score, and its weights are factors of the router's, multiplied in before the wait
    // where registers suffice.
    const bool folds = kFours <= 24 && c.norm.weight != nullptr && !c.norm.layer && c.norm.bias == nullptr;
    float4 w[kFours];
    const auto load_weights = [&](int base) {
#pragma unroll
        for (int i = 0; i < kFours; ++i) w[i] = load4(weight, base + 128 * i + 4 * lane);
        if (!folds) return;
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const float4 g = load4(c.norm.weight, base + 128 * i + 4 * lane);
            w[i] = {w[i].x * g.x, w[i].y * g.y, w[i].z * g.z, w[i].w * g.w};
        }
    };
    load_weights(0);
    await_predecessors();
    float2 stats = {0.0f, 1.0f};
    if (c.norm.layer) {
        const float2 moments = moments_of(x, c.width, true, lane);
        stats = {moments.x, 1.0f / sqrtf(moments.y + c.norm.eps)};
    }
    const bool biased = c.norm.bias != nullptr;
    float sum = 0.0f, squares = 0.0f;
    for (int base = 0; base < c.width; base += 128 * kFours) {
        if (base > 0) load_weights(base);
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const int at = base + 128 * i + 4 * lane;
            if (at >= c.width) continue;
            float4 v = __ldcg(reinterpret_cast<const float4*>(x + at));
            squares += fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w);
            if (c.norm.weight != nullptr && !folds) {
                const float4 g = load4(c.norm.weight, at);
                v = {(v.x - stats.x) * g.x, (v.y - stats.x) * g.y, (v.z - stats.x) * g.z, (v.w - stats.x) * g.w};
                if (biased) {
                    const float4 b = load4(c.norm.bias, at);
                    v = {fmaf(v.x, stats.y, b.x), fmaf(v.y, stats.y, b.y), fmaf(v.z, stats.y, b.z),
                         fmaf(v.w, stats.y, b.w)};
                }
            }
            sum = fmaf(w[i].x, v.x, sum);
            sum = fmaf(w[i].y, v.y, sum);
            sum = fmaf(w[i].z, v.z, sum);
            sum = fmaf(w[i].w, v.w, sum);
        }
    }
    sum = warp_sum(sum);
    const float mean_square = warp_sum(squares) / static_cast<float>(c.width);
    if (c.norm.weight != nullptr && !c.norm.layer) stats.y = 1.0f / sqrtf(mean_square + c.norm.eps);
    if (c.norm.weight != nullptr && !biased) sum *= stats.y;
    if (lane == 0 && e < c.experts) {
        c.to.scores[static_cast<std::int64_t>(t) * c.experts + e] = c.bias != nullptr ? sum + c.bias[e] : sum;
    }
    if (e == 0 && c.expert_norm.weight != nullptr) {
        float2 moments = {0.0f, mean_square};
        if (c.expert_norm.layer) moments = moments_of(x, c.width, true, lane);
        if (lane == 0) c.to.stats[t] = {moments.x, 1.0f / sqrtf(moments.y + c.expert_norm.eps)};
    }
    if (!fused) return;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        last = atomicAdd(c.to.done, 1) == static_cast<int>(gridDim.x * gridDim.y) - 1;
        if (last) {
            *c.to.done = 0;
            __threadfence();
        }
    }
    __syncthreads();
    if (!last) return;
    for (int row = warp; row < c.rows; row += kWarps) {
        choose_row(c, row, shared + warp * memory_floats(c), lane, score_in_memory(c, row));
    }
    if (c.rows == 1) return;
    __threadfence();
    __syncthreads();
    tile_few(
        c, reinterpret_cast<std::int32_t*>(shared), static_cast<int>(threadIdx.x), static_cast<int>(blockDim.x),
        [&](int slot) { return __ldcg(c.to.choice + slot); }, [] { __syncthreads(); });
}

__global__ void __launch_bounds__(32 * kWarps) choose(const RouterCall c) {
    extern __shared__ float shared[];
    allow_successor();
    await_predecessors();
    const int warp = static_cast<int>(threadIdx.x) / 32, t = static_cast<int>(blockIdx.x) * kWarps + warp;
    if (t < c.rows) {
        choose_row(c, t, shared + warp * memory_floats(c), static_cast<int>(threadIdx.x % 32), score_in_memory(c, t));
    }
}

__global__ void __launch_bounds__(kTileThreads) tile_slots(const RouterCall c) {
    extern __shared__ std::int32_t words[];
    allow_successor();
    await_predecessors();
    tile_many(c, words);
}

}  // namespace

void launch_router(cudaStream_t stream, const RouterCall& call) {
    const bool fused = call.rows * call.used <= kFusedSlots;
    const int choice_bytes = kWarps * memory_floats(call) * 4;
    const int bytes = fused ? std::max(choice_bytes, few_words(call) * 4) : 0;
    const dim3 grid(static_cast<unsigned>((call.experts + kWarps - 1) / kWarps), static_cast<unsigned>(call.rows));
    const auto launch = [&](auto kernel) {
        launch_overlapping("scores of experts", kernel, grid, 32 * kWarps, bytes, stream, call, fused);
    };
    if (call.width <= 2048) {
        launch(scores<16>);
    } else if (call.width <= 3072) {
        launch(scores<24>);
    } else {
        launch(scores<40>);
    }
    if (fused) return;
    launch_overlapping("choice of experts", choose, dim3(static_cast<unsigned>((call.rows + kWarps - 1) / kWarps)),
                       32 * kWarps, choice_bytes, stream, call);
    launch_overlapping("tiles of experts", tile_slots, dim3(1), kTileThreads, many_words(call, kTileThreads) * 4,
                       stream, call);
}

}  // namespace foresay::kernels::cuda
