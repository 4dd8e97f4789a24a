// kernels/cuda/experts/choose.cuh: the choice of a row's experts from its scores, and the tiles of few slots: by the
// kernels of the router (routing.cu) and by the step of the decode kernel (mixture_step.cuh), with the same bits.
//
// Order:    a number as an integer that compares like it (order_of). A NaN counts as less than every number, so that
//           whatever the scores are, the chosen experts are different ones.
#pragma once

#include <cmath>

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/experts/experts.h"

namespace foresay::kernels::cuda {

// At least 1; 0 is left for what takes no part.
__device__ inline std::uint32_t order_of(float value) {
    const std::uint32_t bits = __float_as_uint(value);
    if (value != value) return 1;
    return bits & 0x80000000u ? max(~bits, 1u) : bits | 0x80000000u;
}
// The id of the largest order of all lanes, the lowest one among equals.
__device__ inline int best_id(std::uint32_t order, int id) {
    const std::uint32_t most = __reduce_max_sync(~0u, order);
    return static_cast<int>(__reduce_min_sync(~0u, order == most ? static_cast<std::uint32_t>(id) : 0xffffffffu));
}
__device__ inline double warp_sum_double(double value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}
__device__ inline float warp_max(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value = fmaxf(value, __shfl_xor_sync(~0u, value, offset));
    return value;
}

// Marks the groups that take part, in the second half of `sums`. A group counts as the sum of its two best experts.
__device__ inline void keep_best_groups(const RouterCall& c, float* choice, float* sums, int lane) {
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

// The experts of row t, by one warp. score(e): of expert e. `memory`: floats of shared memory, memory_floats() of them.
template <class Score>
__device__ inline void choose_row(const RouterCall& c, int t, float* memory, int lane, const Score& score) {
    float* const weight = memory;              // of each expert
    float* const choice = memory + c.experts;  // what is compared
    float* const groups = choice + c.experts;
    float most = -INFINITY;
    for (int e = lane; e < c.experts; e += 32) {
        weight[e] = score(e);
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
        if (c.rows == 1) c.to.tiles[place] = {chosen, 1, {place}};
        if (c.rows == 1 && place == 0) *c.to.tile_count = c.used;
    }
    __syncwarp();
}
FORESAY_HOST_DEVICE constexpr int memory_floats(const RouterCall& c) { return 2 * c.experts + 2 * c.groups; }

// The tiles of few slots, by `threads` threads that meet() together. Each slot looks at all others. chosen(slot): its
// expert. `memory`: words of shared memory, three for each slot.
template <class Chosen, class Meet>
__device__ inline void tile_few(const RouterCall& c, std::int32_t* memory, int thread, int threads,
                                const Chosen& chosen, const Meet& meet) {
    const int slots = c.rows * c.used;
    std::int32_t* const expert = memory;
    std::int32_t* const place = expert + slots;  // among all slots, sorted by expert
    std::int32_t* const leads = place + slots;   // whether the slot is the first of a tile
    for (int slot = thread; slot < slots; slot += threads) expert[slot] = chosen(slot);
    meet();
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
        leads[slot] = rank % kExpertRows == 0 ? 1 : 0;
    }
    meet();
    for (int slot = thread; slot < slots; slot += threads) {
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
    const auto most = static_cast<int>(most_tiles(slots, c.experts));
    for (int i = used + thread; i < most; i += threads) c.to.tiles[i].count = 0;
}
constexpr int few_words(const RouterCall& c) { return 3 * c.rows * c.used; }

}  // namespace foresay::kernels::cuda
