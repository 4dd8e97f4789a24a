// The choice of experts: scores, the choice of each row (the device's form of kernels/routing.cpp), and the tiles that
// the products read.
//
//   scores     CTA (i, t): a warp for each of four experts, for a row of the batch. Weights of the router depend on no
//              kernel, so a warp asks for them before it waits for its predecessors. With few slots the last CTA that
//              is done goes on with choose_row() for all rows and tile_few(): a counter tells which one that is.
//   many       many slots: scores with the weights of an expert in the registers of a warp, which takes one row of
//              x after the other from shared memory.
//   choose     many slots: a warp per row. Slots that will be grouped (grouped.h) are counted and ranked.
//   tile_many  many slots that will not: one CTA.
//
// Order:    a number as an integer that compares like it (order_of). A NaN counts as less than every number, so that
//           whatever the scores are, the chosen experts are different ones.

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/block_sums.cuh"
#include "kernels/cuda/experts/experts.h"

namespace foresay::kernels::cuda {
namespace {

constexpr int kWarps = 4, kManyWarps = 8;
constexpr int kTileThreads = 1024;

// At least 1; 0 is left for what takes no part.
__device__ std::uint32_t order_of(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    if (value != value) return 1;
    return bits & 0x80000000u ? max(~bits, 1u) : bits | 0x80000000u;
}
// The id of the largest order of all lanes, the lowest one among equals.
__device__ int best_id(std::uint32_t order, int id) {
    const std::uint32_t most = __reduce_max_sync(~0u, order);
    return static_cast<int>(__reduce_min_sync(~0u, order == most ? static_cast<std::uint32_t>(id) : 0xffffffffu));
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

// Marks the groups that take part, in the second half of `sums`. A group counts as the sum of its two best experts.
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
        std::uint32_t most = 0;
        int id = 0;
        for (int g = lane; g < c.groups; g += 32) {
            const std::uint32_t order = sums[c.groups + g] != 0.0f ? 0 : order_of(sums[g]);
            if (order > most) {
                most = order;
                id = g;
            }
        }
        const int best = best_id(most, id);
        if (lane == 0) sums[c.groups + best] = 1.0f;
        __syncwarp();
    }
}

// The tiles of the only row, a slot each, by one warp: lane i has chosen expert `chosen`, which is its `place`-th.
// After the tiles of own experts come empty ones.
__device__ void tile_row(const RouterCall& c, int chosen, int place, bool mine, int lane) {
    const bool own = mine && c.own.has(chosen);
    const int before = __popc(__ballot_sync(~0u, mine && chosen < c.own.first));
    const int count = __popc(__ballot_sync(~0u, own));
    if (own) {
        c.to.tiles[place - before] = {chosen - c.own.first, 1, {place}};
    } else if (mine) {
        c.to.tiles[place < before ? count + place : place].count = 0;
    }
    if (lane == 0) *c.to.tile_count = count;
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
    // From here on `choice` holds orders.
    auto* const orders = reinterpret_cast<std::uint32_t*>(choice);
    const int group_size = c.experts / c.groups;
    for (int e = lane; e < c.experts; e += 32) {
        const bool takes_part = !grouped || groups[c.groups + e / group_size] != 0.0f;
        orders[e] = takes_part ? order_of(choice[e]) : 0;
    }
    // Lane i ends with the i-th best.
    int chosen = 0x7fffffff;
    float chosen_weight = 0.0f;
    for (int n = 0; n < c.used; ++n) {
        std::uint32_t most = 0;
        int id = 0x7fffffff;
        for (int e = lane; e < c.experts; e += 32) {
            const std::uint32_t order = orders[e];
            if (order > most) {
                most = order;
                id = e;
            }
        }
        const int best = best_id(most, id);
        if (best % 32 == lane) orders[best] = 0;
        if (lane == n) {
            chosen = best;
            chosen_weight = weight[best];
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
        // Ranks depend on which row comes first; no bit of a row depends on ranks.
        if (c.grouped && c.own.has(chosen)) c.to.rank[slot] = atomicAdd(c.to.counts + (chosen - c.own.first), 1);
    }
    if (c.rows == 1 && !c.grouped) tile_row(c, chosen, place, mine, lane);
    __syncwarp();
}
FORESAY_HOST_DEVICE constexpr int memory_floats(const RouterCall& c) { return 2 * c.experts + 2 * c.groups; }

// The tiles of few slots, by all threads of a CTA. Each slot looks at all others. `memory`: words of shared memory,
// three for each slot.
__device__ void tile_few(const RouterCall& c, std::int32_t* memory) {
    const auto threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    const int slots = c.rows * c.used;
    std::int32_t* const expert = memory;
    std::int32_t* const place = expert + slots;  // among all slots, sorted by expert
    std::int32_t* const leads = place + slots;   // whether the slot is the first of a tile
    constexpr int kOthers = 0x7fffffff;          // sorted after all own experts
    for (int slot = thread; slot < slots; slot += threads) {
        const int chosen = __ldcg(c.to.choice + slot);
        expert[slot] = c.own.has(chosen) ? chosen - c.own.first : kOthers;
    }
    __syncthreads();
    const auto compare = [&](int slot, int& before, int& rank, int& alike) {
        const int mine = expert[slot];
        before = rank = alike = 0;
        for (int i = 0; i < slots; ++i) {
            const int other = expert[i];
            before += other < mine ? 1 : 0;
            alike += other == mine ? 1 : 0;
            rank += other == mine && i < slot ? 1 : 0;
        }
    };
    for (int slot = thread; slot < slots; slot += threads) {
        int before, rank, alike;
        compare(slot, before, rank, alike);
        place[slot] = before + rank;
        leads[slot] = rank % kExpertRows == 0 && expert[slot] != kOthers ? 1 : 0;
    }
    __syncthreads();
    for (int slot = thread; slot < slots; slot += threads) {
        if (expert[slot] == kOthers) continue;
        int before, rank, alike, tile = -1;
        compare(slot, before, rank, alike);
        for (int i = 0; i < slots; ++i) tile += leads[i] != 0 && place[i] <= place[slot] ? 1 : 0;
        ExpertTile& to = c.to.tiles[tile];
        to.slots[rank % kExpertRows] = slot;
        if (leads[slot] == 0) continue;
        to.expert = expert[slot];
        to.count = min(kExpertRows, alike - rank);
    }
    int used = 0;
    for (int i = 0; i < slots; ++i) used += leads[i];
    if (thread == 0) *c.to.tile_count = used;
    const auto most = static_cast<int>(most_tiles(slots, c.own.count));
    for (int i = used + thread; i < most; i += threads) c.to.tiles[i].count = 0;
}
constexpr int few_words(const RouterCall& c) { return 3 * c.rows * c.used; }

// The tiles of any number of slots, by all threads of a CTA; `memory`: many_words() words of shared memory. A thread
// counts the slots of one expert in one stretch of them; neighbouring threads have neighbouring experts, so that they
// read the same choices.
__device__ void tile_many(const RouterCall& c, std::int32_t* memory) {
    const auto threads = static_cast<int>(blockDim.x), thread = static_cast<int>(threadIdx.x);
    const int experts = c.own.count;
    constexpr std::uint16_t kNone = 0xffff;  // of another device
    const int slots = c.rows * c.used, stretches = max(1, threads / experts);
    const int each = (slots + stretches - 1) / stretches;
    std::int32_t* const counts = memory;                        // [stretches, E]
    std::int32_t* const totals = counts + experts * stretches;  // [E]
    std::int32_t* const first_tile = totals + experts;          // [E + 1]
    auto* const choice = reinterpret_cast<std::uint16_t*>(first_tile + experts + 1);
    for (int slot = thread; slot < slots; slot += threads) {
        const int chosen = __ldcg(c.to.choice + slot);
        choice[slot] = c.own.has(chosen) ? static_cast<std::uint16_t>(chosen - c.own.first) : kNone;
    }
    __syncthreads();
    const auto over_stretches = [&](const auto& body) {
        for (int i = thread; i < experts * stretches; i += threads) {
            const int begin = i / experts * each;
            body(i, i % experts, begin, min(begin + each, slots));
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
        for (int e0 = 0; e0 < experts; e0 += 32) {
            const int e = e0 + thread;
            int count = 0;
            for (int s = 0; s < stretches && e < experts; ++s) {
                const int here = counts[s * experts + e];
                counts[s * experts + e] = count;
                count += here;
            }
            const int own = (count + kExpertRows - 1) / kExpertRows;
            int up_to = own;
#pragma unroll
            for (int offset = 1; offset < 32; offset *= 2) {
                const int other = __shfl_up_sync(~0u, up_to, offset);
                if (thread >= offset) up_to += other;
            }
            if (e < experts) {
                totals[e] = count;
                first_tile[e] = base + up_to - own;
            }
            base += __shfl_sync(~0u, up_to, 31);
        }
        if (thread == 0) *c.to.tile_count = first_tile[experts] = base;
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
    for (int e = thread; e < experts; e += threads) {
        for (int left = totals[e], tile = first_tile[e]; left > 0; left -= kExpertRows, ++tile) {
            c.to.tiles[tile].expert = e;
            c.to.tiles[tile].count = min(kExpertRows, left);
        }
    }
    const auto most = static_cast<int>(most_tiles(slots, c.own.count));
    for (int i = first_tile[experts] + thread; i < most; i += threads) c.to.tiles[i].count = 0;
}
constexpr int many_words(const RouterCall& c, int threads) {
    const int experts = c.own.count, stretches = threads / experts > 1 ? threads / experts : 1;
    return experts * stretches + 2 * experts + 1 + (c.rows * c.used + 1) / 2;
}

// Mean (0 for an RMS norm) and mean square around it of a row, by a warp.
template <class Value>
__device__ float2 moments_of(int width, bool layer, int lane, const Value& x) {
    float mean = 0.0f, squares = 0.0f;
    if (layer) {
        for (int i = lane; i < width; i += 32) mean += x(i);
        mean = warp_sum(mean) / static_cast<float>(width);
    }
    for (int i = lane; i < width; i += 32) {
        const float deviation = x(i) - mean;
        squares = fmaf(deviation, deviation, squares);
    }
    return {mean, warp_sum(squares) / static_cast<float>(width)};
}

// The weights of an expert, kFours times four inputs a lane at once, and its scores. An RMS norm is a factor of the
// score, and its weights are factors of the router's, multiplied in when these are loaded where registers suffice.
template <int kFours>
class RouterWeights {
public:
    __device__ RouterWeights(const RouterCall& c, int e, int lane)
        : weight_(c.weight + static_cast<std::int64_t>(min(e, c.experts - 1)) * c.width),
          folds_(kFours <= 24 && c.norm.weight != nullptr && !c.norm.layer && c.norm.bias == nullptr) {
        load(c, 0, lane);
    }
    // Of row t, whose inputs x4(i) and x(i) give; by a warp.
    template <class Inputs4, class Inputs>
    __device__ __forceinline__ void score(const RouterCall& c, int t, int e, int lane, const Inputs4& x4,
                                          const Inputs& x) {
        float2 stats = {0.0f, 1.0f};
        if (c.norm.layer) {
            const float2 moments = moments_of(c.width, true, lane, x);
            stats = {moments.x, 1.0f / sqrtf(moments.y + c.norm.eps)};
        }
        const bool biased = c.norm.bias != nullptr;
        float sum = 0.0f, squares = 0.0f;
        for (int base = 0; base < c.width; base += 128 * kFours) {
            if (base != loaded_) load(c, base, lane);
#pragma unroll
            for (int i = 0; i < kFours; ++i) {
                const int at = base + 128 * i + 4 * lane;
                if (at >= c.width) continue;
                float4 v = x4(at);
                squares += fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w);
                if (c.norm.weight != nullptr && !folds_) {
                    const float4 g = load4(c, c.norm.weight, at);
                    v = {(v.x - stats.x) * g.x, (v.y - stats.x) * g.y, (v.z - stats.x) * g.z, (v.w - stats.x) * g.w};
                    if (biased) {
                        const float4 b = load4(c, c.norm.bias, at);
                        v = {fmaf(v.x, stats.y, b.x), fmaf(v.y, stats.y, b.y), fmaf(v.z, stats.y, b.z),
                             fmaf(v.w, stats.y, b.w)};
                    }
                }
                sum = fmaf(w_[i].x, v.x, sum);
                sum = fmaf(w_[i].y, v.y, sum);
                sum = fmaf(w_[i].z, v.z, sum);
                sum = fmaf(w_[i].w, v.w, sum);
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
            if (c.expert_norm.layer) moments = moments_of(c.width, true, lane, x);
            if (lane == 0) c.to.stats[t] = {moments.x, 1.0f / sqrtf(moments.y + c.expert_norm.eps)};
        }
    }

private:
    static __device__ float4 load4(const RouterCall& c, const float* from, int at) {
        return at < c.width ? __ldg(reinterpret_cast<const float4*>(from + at)) : float4{};
    }
    __device__ void load(const RouterCall& c, int base, int lane) {
        loaded_ = base;
#pragma unroll
        for (int i = 0; i < kFours; ++i) w_[i] = load4(c, weight_, base + 128 * i + 4 * lane);
        if (!folds_) return;
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const float4 g = load4(c, c.norm.weight, base + 128 * i + 4 * lane);
            w_[i] = {w_[i].x * g.x, w_[i].y * g.y, w_[i].z * g.z, w_[i].w * g.w};
        }
    }

    const float* weight_;
    bool folds_;
    int loaded_ = 0;  // the input that w_ begins with
    float4 w_[kFours];
};

// Grid: (experts / kWarps, rows). `fused`: the last CTA chooses and tiles.
template <int kFours>
__global__ void __launch_bounds__(32 * kWarps) scores(const RouterCall c, bool fused) {
    extern __shared__ float shared[];
    __shared__ bool last;
    allow_successor();
    const int t = static_cast<int>(blockIdx.y), lane = static_cast<int>(threadIdx.x % 32);
    const int warp = static_cast<int>(threadIdx.x / 32), e = static_cast<int>(blockIdx.x) * kWarps + warp;
    const float* const x = c.x + static_cast<std::int64_t>(t) * c.width;
    RouterWeights<kFours> weights(c, e, lane);
    await_predecessors();
    weights.score(
        c, t, e, lane, [&](int i) { return __ldcg(reinterpret_cast<const float4*>(x + i)); },
        [&](int i) { return __ldcg(x + i); });
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
        choose_row(c, row, shared + warp * memory_floats(c), lane);
    }
    if (c.rows == 1 || c.own.count == 0) return;
    __threadfence();
    __syncthreads();
    tile_few(c, reinterpret_cast<std::int32_t*>(shared));
}

// Grid: (experts / kManyWarps, stretches of `each` rows). Two buffers of `batch` rows in shared memory, one of
// which is copied while the other one is multiplied.
template <int kFours>
__global__ void __launch_bounds__(32 * kManyWarps, kFours > 16 ? 1 : 2)
    many_scores(const RouterCall c, int each, int batch) {
    extern __shared__ __align__(16) float shared[];
    allow_successor();
    const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    const int lane = thread % 32, e = static_cast<int>(blockIdx.x) * (threads / 32) + thread / 32;
    const int begin = static_cast<int>(blockIdx.y) * each, end = min(begin + each, c.rows);
    RouterWeights<kFours> weights(c, e, lane);
    await_predecessors();
    if (c.grouped && blockIdx.x == 0 && blockIdx.y == 0) {
        for (int i = thread; i < c.own.count; i += threads) c.to.counts[i] = 0;
    }
    const auto copy = [&](int first, int buffer) {
        const auto fours = static_cast<int>(max(min(batch, end - first), 0) * c.width / 4);
        const float* const from = c.x + static_cast<std::int64_t>(first) * c.width;
        const std::uint32_t to = shared_address(shared) + buffer * batch * c.width * 4;
        for (int i = thread; i < fours; i += threads) {
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + 16 * i), "l"(from + 4 * i) : "memory");
        }
        asm volatile("cp.async.commit_group;" ::: "memory");
    };
    copy(begin, 0);
    int buffer = 0;
    for (int first = begin; first < end; first += batch, buffer ^= 1) {
        copy(first + batch, buffer ^ 1);
        asm volatile("cp.async.wait_group 1;" ::: "memory");
        __syncthreads();
        for (int t = first; t < min(first + batch, end); ++t) {
            const float* const x = shared + (buffer * batch + t - first) * c.width;
            weights.score(
                c, t, e, lane, [&](int i) { return *reinterpret_cast<const float4*>(x + i); },
                [&](int i) { return x[i]; });
        }
        __syncthreads();
    }
}

__global__ void __launch_bounds__(32 * kWarps) choose(const RouterCall c) {
    extern __shared__ float shared[];
    allow_successor();
    await_predecessors();
    const int warp = static_cast<int>(threadIdx.x) / 32, t = static_cast<int>(blockIdx.x) * kWarps + warp;
    if (t < c.rows) choose_row(c, t, shared + warp * memory_floats(c), static_cast<int>(threadIdx.x % 32));
}

__global__ void __launch_bounds__(kTileThreads) tile_slots(const RouterCall c) {
    extern __shared__ std::int32_t words[];
    allow_successor();
    await_predecessors();
    tile_many(c, words);
}

}  // namespace

void launch_router(cudaStream_t stream, const RouterCall& call) {
    const bool fused = call.rows * call.used <= kFusedSlots && !call.grouped;
    const int choice_bytes = kWarps * memory_floats(call) * 4;
    const auto launch = [&](auto fours) {
        if (fused) {
            const dim3 grid(static_cast<unsigned>((call.experts + kWarps - 1) / kWarps),
                            static_cast<unsigned>(call.rows));
            launch_overlapping("scores of experts", scores<fours>, grid, 32 * kWarps,
                               std::max(choice_bytes, few_words(call) * 4), stream, call, fused);
            return;
        }
        const int columns = (call.experts + kManyWarps - 1) / kManyWarps, batch = std::clamp(12288 / call.width, 1, 4);
        // About two CTAs for each multiprocessor there may be, as long as an expert's weights meet several rows.
        const int each = std::clamp(call.rows * columns / 264, 4, 32);
        const dim3 grid(static_cast<unsigned>(columns), static_cast<unsigned>((call.rows + each - 1) / each));
        launch_overlapping("scores of experts", many_scores<fours>, grid, 32 * kManyWarps, 2 * batch * call.width * 4,
                           stream, call, each, batch);
    };
    if (call.width <= 2048) {
        launch(std::integral_constant<int, 16>());
    } else if (call.width <= 3072) {
        launch(std::integral_constant<int, 24>());
    } else {
        launch(std::integral_constant<int, 40>());
    }
    if (fused) return;
    launch_overlapping("choice of experts", choose, dim3(static_cast<unsigned>((call.rows + kWarps - 1) / kWarps)),
                       32 * kWarps, choice_bytes, stream, call);
    if (call.grouped || call.own.count == 0) return;
    launch_overlapping("tiles of experts", tile_slots, dim3(1), kTileThreads, many_words(call, kTileThreads) * 4,
                       stream, call);
}

}  // namespace foresay::kernels::cuda
