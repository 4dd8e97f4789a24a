// The choice of experts: scores, the choice of each row (the device's form of kernels/routing.cpp), and the lists that
// the products read.
//
//   scores     CTA (i, t): a warp for each of eight experts, for a row of the batch. The row is normed once, in shared
//              memory. With few rows the last CTA that is done goes on with choose_row() for all rows and
//              list_tiles(): a counter tells which one that is.
//   choose     many rows: a warp per row.
//   list       many rows: one CTA.
//
// A key orders numbers and ids at once: the larger number first, the lower id among equals. A NaN counts as less than
// every number, so that whatever the scores are, the chosen experts are K different ones.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/block_sums.cuh"
#include "kernels/cuda/experts/experts.h"

namespace foresay::kernels::cuda {
namespace {

constexpr int kWarps = 8;
constexpr int kListThreads = 1024;

__device__ std::uint64_t key_of(float value, int id) {
    const std::uint32_t bits = __float_as_uint(value);
    std::uint32_t order = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    if (value != value) order = 0;
    return static_cast<std::uint64_t>(order) << 32 | (0xffffffffu - static_cast<std::uint32_t>(id));
}
__device__ int id_of(std::uint64_t key) { return static_cast<int>(0xffffffffu - static_cast<std::uint32_t>(key)); }
__device__ std::uint64_t largest_key(std::uint64_t key) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) {
        const std::uint64_t other = __shfl_xor_sync(~0u, key, offset);
        if (other > key) key = other;
    }
    return key;
}
__device__ double warp_sum_double(double value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}
__device__ float warp_max(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
    return value;
}

// Takes the experts outside the best groups out of the choice: their numbers become `taken`. A group counts as the sum
// of its two best experts.
__device__ void keep_best_groups(const RouterCall& c, float* choice, float* sums, int lane) {
    const int size = c.experts / c.groups;
    for (int g = lane; g < c.groups; g += 32) {
        float first = -INFINITY, second = -INFINITY;
        for (int i = 0; i < size; ++i) {
            const float value = choice[g * size + i];
            if (value > first) {
                second = first;
                first = value;
            } else if (value > second) {
                second = value;
            }
        }
        sums[g] = size > 1 ? first + second : first;
        sums[c.groups + g] = 0.0f;  // kept
    }
    __syncwarp();
    for (int n = 0; n < c.groups_used; ++n) {
        std::uint64_t best = 0;
        for (int g = lane; g < c.groups; g += 32) {
            if (sums[c.groups + g] != 0.0f) continue;
            const std::uint64_t key = key_of(sums[g], g);
            if (key > best) best = key;
        }
        best = largest_key(best);
        if (lane == 0) sums[c.groups + id_of(best)] = 1.0f;
        __syncwarp();
    }
}

// The experts of row t, by one warp. `memory`: floats of shared memory, memory_floats() of them.
__device__ void choose_row(const RouterCall& c, int t, float* memory, int lane) {
    float* const weight = memory;              // of each expert
    float* const choice = memory + c.experts;  // what is compared
    float* const groups = choice + c.experts;
    const float* const scores = c.to.scores + static_cast<std::int64_t>(t) * c.experts;
    float most = -INFINITY;
    for (int e = lane; e < c.experts; e += 32) {
        weight[e] = __ldcg(scores + e);
        most = fmaxf(most, weight[e]);
    }
    if (c.gating == Gating::softmax) {
        const double peak = warp_max(most);
        double sum = 0.0;
        for (int e = lane; e < c.experts; e += 32) {
            weight[e] = static_cast<float>(exp(static_cast<double>(weight[e]) - peak));
            sum += static_cast<double>(weight[e]);
        }
        sum = warp_sum_double(sum);
        for (int e = lane; e < c.experts; e += 32) {
            weight[e] = static_cast<float>(static_cast<double>(weight[e]) / sum);
        }
    } else if (c.gating == Gating::sigmoid) {
        for (int e = lane; e < c.experts; e += 32) {
            weight[e] = static_cast<float>(1.0 / (1.0 + exp(-static_cast<double>(weight[e]))));
        }
    }
    for (int e = lane; e < c.experts; e += 32) {
        choice[e] = c.choice_bias != nullptr ? weight[e] + c.choice_bias[e] : weight[e];
    }
    __syncwarp();
    const bool grouped = c.groups_used < c.groups;
    if (grouped) keep_best_groups(c, choice, groups, lane);
    const int group_size = c.experts / c.groups;
    // Lane i ends with the i-th best. An expert is out once it has been chosen; bit i of `gone` is that of expert
    // lane + 32 i.
    std::uint32_t gone = 0;
    int chosen = 0x7fffffff;
    float chosen_weight = 0.0f;
    for (int n = 0; n < c.used; ++n) {
        std::uint64_t best = 0;
        for (int e = lane, i = 0; e < c.experts; e += 32, ++i) {
            if (gone >> i & 1u) continue;
            if (grouped && groups[c.groups + e / group_size] == 0.0f) continue;
            const std::uint64_t key = key_of(choice[e], e);
            if (key > best) best = key;
        }
        const int id = id_of(largest_key(best));
        if (id % 32 == lane) gone |= 1u << (id / 32);
        if (lane == n) {
            chosen = id;
            chosen_weight = weight[id];
        }
    }
    const bool mine = lane < c.used;
    if (c.gating == Gating::softmax_chosen) {
        const double peak = warp_max(mine ? chosen_weight : -INFINITY);
        if (mine) chosen_weight = static_cast<float>(exp(static_cast<double>(chosen_weight) - peak));
        const double sum = warp_sum_double(mine ? static_cast<double>(chosen_weight) : 0.0);
        chosen_weight = static_cast<float>(static_cast<double>(chosen_weight) / sum);
    }
    // By ascending id.
    int place = 0;
    for (int i = 0; i < c.used; ++i) {
        if (__shfl_sync(~0u, chosen, i) < chosen) ++place;
    }
    if (c.renormalize) {
        double sum = 0.0;
        for (int i = 0; i < c.used; ++i) {
            const unsigned lanes = __ballot_sync(~0u, mine && place == i);
            sum += static_cast<double>(__shfl_sync(~0u, chosen_weight, __ffs(static_cast<int>(lanes)) - 1));
        }
        chosen_weight = static_cast<float>(static_cast<double>(chosen_weight) / fmax(sum, 1e-20));
    }
    if (mine) {
        chosen_weight *= c.scale;
        if (c.factor != nullptr) chosen_weight *= c.factor[chosen];
        const std::int64_t slot = static_cast<std::int64_t>(t) * c.used + place;
        c.to.choice[slot] = chosen;
        c.to.weight[slot] = chosen_weight;
    }
    __syncwarp();
}
FORESAY_HOST_DEVICE constexpr int memory_floats(const RouterCall& c) { return 2 * c.experts + 2 * c.groups; }

// Sorts the slots by expert, and lists the tiles. By all threads of a CTA; `memory`: list_words() words of shared
// memory. Slots keep their order within an expert. A thread counts the slots of one expert in one stretch of them;
// neighbouring threads have neighbouring experts, so that they read the same choices.
__device__ void list_tiles(const RouterCall& c, std::int32_t* memory) {
    const auto threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    const int slots = c.rows * c.used, stretches = max(1, threads / c.experts);
    const int each = (slots + stretches - 1) / stretches;
    std::int32_t* const counts = memory;  // [stretches, E]
    std::int32_t* const first = counts + c.experts * stretches;
    std::int32_t* const tile = first + c.experts + 1;
    auto* const choice = reinterpret_cast<std::uint16_t*>(tile + c.experts + 1);
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
    // One warp: where each expert's slots and tiles begin. The counts of stretches become beginnings.
    if (thread < 32) {
        int slot_base = 0, tile_base = 0;
        for (int e0 = 0; e0 < c.experts; e0 += 32) {
            const int e = e0 + thread;
            int count = 0;
            for (int i = e; i < c.experts * stretches; i += c.experts) {
                if (e >= c.experts) break;
                const int here = counts[i];
                counts[i] = count;
                count += here;
            }
            const int own_tiles = (count + kExpertRows - 1) / kExpertRows;
            int slots_up = count, tiles_up = own_tiles;
#pragma unroll
            for (int offset = 1; offset < 32; offset *= 2) {
                const int a = __shfl_up_sync(~0u, slots_up, offset), b = __shfl_up_sync(~0u, tiles_up, offset);
                if (thread >= offset) {
                    slots_up += a;
                    tiles_up += b;
                }
            }
            if (e < c.experts) {
                first[e] = slot_base + slots_up - count;
                tile[e] = tile_base + tiles_up - own_tiles;
            }
            slot_base += __shfl_sync(~0u, slots_up, 31);
            tile_base += __shfl_sync(~0u, tiles_up, 31);
        }
        if (thread == 0) {
            first[c.experts] = slot_base;
            c.to.counts[0] = tile_base;
        }
    }
    __syncthreads();
    over_stretches([&](int i, int e, int begin, int end) {
        int at = first[e] + counts[i];
        for (int slot = begin; slot < end; ++slot) {
            if (choice[slot] == e) c.to.sorted[at++] = slot;
        }
    });
    for (int e = thread; e < c.experts; e += threads) {
        const int begin = first[e], end = first[e + 1];
        for (int at = begin, i = tile[e]; at < end; at += kExpertRows, ++i) {
            c.to.tiles[i] = {e, at, min(kExpertRows, end - at), 0};
        }
    }
}
FORESAY_HOST_DEVICE constexpr int list_words(const RouterCall& c, int threads) {
    const int stretches = threads / c.experts > 1 ? threads / c.experts : 1;
    return c.experts * stretches + 2 * c.experts + 2 + (c.rows * c.used + 1) / 2;
}

// Grid: (experts / kWarps, rows). `fused`: the last CTA chooses and lists.
__global__ void __launch_bounds__(32 * kWarps) scores(const RouterCall c, bool fused) {
    extern __shared__ float shared[];
    __shared__ float parts[32];
    __shared__ bool last;
    allow_successor();
    await_predecessors();
    const int t = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x % 32);
    const float* const x = c.x + static_cast<std::int64_t>(t) * c.width;
    for (int i = static_cast<int>(threadIdx.x); i < c.width; i += 32 * kWarps) shared[i] = __ldcg(x + i);
    __syncthreads();
    const auto stats_of = [&](const NormArgs& norm) {
        const float2 moments = row_moments(norm.layer, c.width, parts, [&](int i) { return shared[i]; });
        return float2{moments.x, 1.0f / sqrtf(moments.y + norm.eps)};
    };
    if (blockIdx.x == 0 && c.expert_norm.weight != nullptr) {
        const float2 stats = stats_of(c.expert_norm);
        if (threadIdx.x == 0) c.to.stats[t] = stats;
    }
    if (c.norm.weight != nullptr) {
        const float2 stats = stats_of(c.norm);
        for (int i = static_cast<int>(threadIdx.x); i < c.width; i += 32 * kWarps) {
            shared[i] = normed_value(c.norm, stats, shared[i], i);
        }
        __syncthreads();
    }
    const int e = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x) / 32;
    if (e < c.experts) {
        // Widths are multiples of 4 (Panels).
        const float* const weight = c.weight + static_cast<std::int64_t>(e) * c.width;
        float sum = 0.0f;
#pragma unroll 4
        for (int i = 4 * lane; i < c.width; i += 128) {
            const float4 w = __ldg(reinterpret_cast<const float4*>(weight + i));
            const float4 v = *reinterpret_cast<const float4*>(shared + i);
            sum = fmaf(w.x, v.x, sum);
            sum = fmaf(w.y, v.y, sum);
            sum = fmaf(w.z, v.z, sum);
            sum = fmaf(w.w, v.w, sum);
        }
        sum = warp_sum(sum);
        if (lane == 0) {
            c.to.scores[static_cast<std::int64_t>(t) * c.experts + e] = c.bias != nullptr ? sum + c.bias[e] : sum;
        }
    }
    if (!fused) return;
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        const auto all = static_cast<std::int32_t>(gridDim.x * gridDim.y);
        last = atomicAdd(c.to.counts + 1, 1) == all - 1;
        if (last) {
            c.to.counts[1] = 0;
            __threadfence();
        }
    }
    __syncthreads();
    if (!last) return;
    for (int row = static_cast<int>(threadIdx.x) / 32; row < c.rows; row += kWarps) {
        choose_row(c, row, shared + static_cast<int>(threadIdx.x) / 32 * memory_floats(c), lane);
    }
    __threadfence();
    __syncthreads();
    list_tiles(c, reinterpret_cast<std::int32_t*>(shared));
}

__global__ void __launch_bounds__(32 * kWarps) choose(const RouterCall c) {
    extern __shared__ float shared[];
    allow_successor();
    await_predecessors();
    const int warp = static_cast<int>(threadIdx.x) / 32, t = static_cast<int>(blockIdx.x) * kWarps + warp;
    if (t < c.rows) choose_row(c, t, shared + warp * memory_floats(c), static_cast<int>(threadIdx.x % 32));
}

__global__ void __launch_bounds__(kListThreads) list(const RouterCall c) {
    extern __shared__ std::int32_t counts[];
    allow_successor();
    await_predecessors();
    list_tiles(c, counts);
}

}  // namespace

void launch_router(cudaStream_t stream, const RouterCall& call) {
    const bool fused = call.rows <= kFusedRows;
    const int choice_bytes = kWarps * memory_floats(call) * 4;
    int bytes = call.width * 4;
    if (fused) bytes = std::max({bytes, choice_bytes, list_words(call, 32 * kWarps) * 4});
    const dim3 grid(static_cast<unsigned>((call.experts + kWarps - 1) / kWarps), static_cast<unsigned>(call.rows));
    launch_overlapping("scores of experts", scores, grid, 32 * kWarps, bytes, stream, call, fused);
    if (fused) return;
    launch_overlapping("choice of experts", choose, dim3(static_cast<unsigned>((call.rows + kWarps - 1) / kWarps)),
                       32 * kWarps, choice_bytes, stream, call);
    launch_overlapping("lists of experts", list, dim3(1), kListThreads, list_words(call, kListThreads) * 4, stream,
                       call);
}

}  // namespace foresay::kernels::cuda
