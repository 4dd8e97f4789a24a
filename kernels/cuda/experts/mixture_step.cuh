// kernels/cuda/experts/mixture_step.cuh: a mixture of experts as a step of the decode kernel: router, products and sum
// of up to 16 rows, without a launch and without a meeting of the grid.
//
// Data flow, by the multiplying warps of each CTA; what CTAs pass on are flagged words (flagged_words.cuh):
//
//   router      CTA e has expert e (and e + CTAs, ...): its row of the router, times the norm's weights, lies in shared
//               memory before x is there. A warp per row of the batch --> one score
//   choice      every CTA chooses the experts of all rows for itself: a warp per row polls its scores. Then the tiles.
//               So there is no hop of the choice from one CTA to the others
//   gate, up    groups of warps share out pairs of tile and panel (products.cuh) --> activations of each slot
//   down        likewise --> outputs of each slot
//   sum         each CTA has a slice of x: the slots by ascending expert, plus the residual stream --> x
//
// Bits:     those of the launches (routing.cu, products.cuh, combine.cu): the same functions, or the same additions in
//           the same order. So rows of a wider batch, which takes the launches, have them, too.
// Memory:   the producer's ring goes on filling with the weights of the next layer. The step has its own ring of
//           weights, because which experts come is known to the multiplying warps first.
// Waits:    those of the warps for each other, and flagged words.
#pragma once

#include "kernels/cuda/decode/flagged_words.cuh"
#include "kernels/cuda/experts/choose.cuh"
#include "kernels/cuda/experts/mixture_step.h"
#include "kernels/cuda/experts/products.cuh"
#include "kernels/cuda/rowwise/norms.cuh"

namespace foresay::kernels::cuda {

__device__ inline float4 await_flagged4(const float* from) {
    float4 v = load_flagged4(from);
    while (not_ready(v)) v = load_flagged4(from);
    return v;
}

// A group of the multiplying warps (ProductsLaunch is the other kind of place).
struct ProductsStep {
    static constexpr bool kFlagged = true;
    const MixtureLists& lists;
    char* shared;         // of the group
    std::int32_t* slots;  // [2][kExpertRows]
    int first_warp, group_warps;
    int group, groups;  // within the CTA

    __device__ int warp() const { return static_cast<int>(thread_index() / 32) - first_warp; }
    __device__ int warps() const { return group_warps; }
    static __device__ int lane() { return static_cast<int>(thread_index() % 32); }
    // Neighbouring shares are on different multiprocessors.
    __device__ int share() const { return static_cast<int>(blockIdx.x) + group * static_cast<int>(gridDim.x); }
    __device__ int shares() const { return groups * static_cast<int>(gridDim.x); }
    // Barriers 1 to 4; attention, which uses 1 and 2, is another step.
    __device__ void meet() const {
        asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "r"(32 * group_warps) : "memory");
    }
    __device__ int tiles(int known) const { return known > 0 ? known : lists.tile_count; }
    __device__ int2 head(int tile) const { return {lists.tiles[tile].expert, lists.tiles[tile].count}; }
    __device__ std::int32_t slot(int tile, int i) const { return lists.tiles[tile].slots[i]; }
    __device__ float2 stats(std::int32_t row) const { return {0.0f, lists.stats[row]}; }
    static __device__ float4 load(const float* from) { return load_flagged4(from); }
    static __device__ void await_inputs() {}
};

// Gate and up, or down, by all multiplying warps. Not inlined: registers.
template <QuantType E>
__device__ __noinline__ void multiply_chosen(std::uint32_t shared, std::uint32_t call, std::uint32_t plan) {
    MixtureLists& lists = MixtureLists::at(shared);
    const auto& c = *static_cast<const ProductsCall*>(__cvta_shared_to_generic(call));
    const MixtureProducts how = *static_cast<const MixtureProducts*>(__cvta_shared_to_generic(plan));
    char* const work = lists.work();
    const int warp = static_cast<int>(thread_index() / 32), group = warp / how.warps;
    if (group >= how.groups) return;
    const ProductsStep at{
        lists,     work + group * how.plan.shared_bytes, lists.group_slots[group], group * how.warps, how.warps, group,
        how.groups};
    multiply_share<E, 1>(c, how.plan, at);
}

template <QuantType kDense>
__device__ __forceinline__ void multiply_chosen_as(std::uint32_t shared, bool down) {
    const MixtureLists& lists = MixtureLists::at(shared);
    const auto place = [&](const void* of) { return shared_address(of); };
    const std::uint32_t call = down ? place(&lists.constants.out) : place(&lists.constants.in);
    const std::uint32_t plan = down ? place(&lists.plan.out) : place(&lists.plan.in);
    if constexpr (kDense == QuantType::q8_0) {
        const QuantType quant_type = down ? lists.constants.out.quant_type : lists.constants.in.quant_type;
        if (quant_type == QuantType::mxfp4) return multiply_chosen<QuantType::mxfp4>(shared, call, plan);
    }
    multiply_chosen<kDense>(shared, call, plan);
}

// The score of an expert for a row x (routing.cu: scores()), by a warp. router, norm: rows in shared memory; `folds`:
// the norm's weights are in `router` already. square: 1 / deviation for the norm of the experts.
__device__ inline float score_of(const RouterCall& c, const float* x, const float* router, const float* norm,
                                 bool folds, int lane, float& mean_square) {
    constexpr int kFours = 8;
    float sum = 0.0f, squares = 0.0f;
#pragma unroll 1
    for (int base = 0; base < c.width; base += 128 * kFours) {
        float4 row[kFours];
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const int at = base + 128 * i + 4 * lane;
            row[i] = at < c.width ? load_flagged4(x + at) : float4{};
        }
#pragma unroll
        for (int i = 0; i < kFours; ++i) {
            const int at = base + 128 * i + 4 * lane;
            if (at >= c.width) continue;
            float4 v = row[i];
            if (not_ready(v)) v = await_flagged4(x + at);
            const float4 w = *reinterpret_cast<const float4*>(router + at);
            squares += fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w);
            if (c.norm.weight != nullptr && !folds) {
                const float4 g = *reinterpret_cast<const float4*>(norm + at);
                v = {v.x * g.x, v.y * g.y, v.z * g.z, v.w * g.w};
            }
            sum = fmaf(w.x, v.x, sum);
            sum = fmaf(w.y, v.y, sum);
            sum = fmaf(w.z, v.z, sum);
            sum = fmaf(w.w, v.w, sum);
        }
    }
    __syncwarp();
    sum = warp_sum(sum);
    mean_square = warp_sum(squares) / static_cast<float>(c.width);
    if (c.norm.weight != nullptr) sum *= 1.0f / sqrtf(mean_square + c.norm.eps);
    return sum;
}

// The barrier of all multiplying warps (multiplier_barrier() in gemv.cuh).
template <int kWarps>
__device__ inline void meet_multipliers() {
    named_barrier<15, kWarps * 32>();
}

// Where the rows of the step lie. All but `out` of the last layer are flagged words.
struct MixturePlaces {
    const float* x;  // [T, D]
    float* out;      // [T, D]
    float* buffer;   // MixturePlan's words
};

// Scores and the choice of all rows. `lists`: with the constants of the layer.
template <int kWarps>
__device__ __noinline__ void route_rows(std::uint32_t shared, const float* x, float* buffer, int rows) {
    MixtureLists& lists = MixtureLists::at(shared);
    const MixturePlan& plan = lists.plan;
    const auto meet = [] { meet_multipliers<kWarps>(); };
    const RouterCall& c = lists.constants.router;
    const auto thread = static_cast<int>(thread_index()), warp = thread / 32, lane = thread % 32;
    const int width = c.width, experts = c.experts;
    auto* const router = reinterpret_cast<float*>(lists.work());
    float* const norm = router + width;
    // As the launch has it: up to 3,072 inputs the weights of the norm are factors of the router's.
    const bool folds = width <= 3072 && c.norm.weight != nullptr;
    for (int e = static_cast<int>(blockIdx.x); e < experts; e += static_cast<int>(gridDim.x)) {
        if (e >= static_cast<int>(gridDim.x)) meet();  // the last expert's row has been used
        const float* const weight = c.weight + static_cast<std::int64_t>(e) * width;
        for (int i = 4 * thread; i < width; i += 128 * kWarps) {
            float4 w = __ldg(reinterpret_cast<const float4*>(weight + i));
            if (c.norm.weight != nullptr) {
                const float4 g = __ldg(reinterpret_cast<const float4*>(c.norm.weight + i));
                if (folds) {
                    w = {w.x * g.x, w.y * g.y, w.z * g.z, w.w * g.w};
                } else {
                    *reinterpret_cast<float4*>(norm + i) = g;
                }
            }
            *reinterpret_cast<float4*>(router + i) = w;
        }
        const float bias = c.bias != nullptr ? __ldg(c.bias + e) : 0.0f;
        meet();
        for (int t = warp; t < rows; t += kWarps) {
            float mean_square;
            const float sum =
                score_of(c, x + static_cast<std::int64_t>(t) * width, router, norm, folds, lane, mean_square);
            if (lane != 0) continue;
            buffer[plan.scores + t * experts + e] = c.bias != nullptr ? sum + bias : sum;
            if (e == 0) buffer[plan.stats + t] = 1.0f / sqrtf(mean_square + c.expert_norm.eps);
        }
    }
    // The choice. Its memory follows the router's row, which other warps may still read.
    for (int t = warp; t < rows; t += kWarps) {
        float* const memory = router + 2 * width + warp * memory_floats(c);
        const float* const from = buffer + plan.scores + t * experts;
        constexpr int kAtOnce = 4;
        for (int base = lane; base - lane < experts; base += 32 * kAtOnce) {
            float score[kAtOnce];
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                score[i] = base + 32 * i < experts ? load_flagged(from + base + 32 * i) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                while (not_ready(score[i])) score[i] = load_flagged(from + base + 32 * i);
                if (base + 32 * i < experts) memory[base + 32 * i] = score[i];
            }
        }
        if (lane == 0) {
            float stat = load_flagged(buffer + plan.stats + t);
            while (not_ready(stat)) stat = load_flagged(buffer + plan.stats + t);
            lists.stats[t] = stat;
        }
        __syncwarp();
        choose_row(c, t, memory, lane, [&](int e) { return memory[e]; });
    }
    meet();
    if (rows == 1) return;
    tile_few(
        c, reinterpret_cast<std::int32_t*>(router), thread, 32 * kWarps, [&](int slot) { return lists.choice[slot]; },
        meet);
    meet();
}

// This CTA's slice of x (combine.cu).
template <int kWarps>
__device__ __noinline__ void sum_slots(std::uint32_t shared, const MixturePlaces at, int rows) {
    const MixtureLists& lists = MixtureLists::at(shared);
    const MixturePlan& plan = lists.plan;
    const CombineCall& c = lists.constants.combine;
    const auto thread = static_cast<int>(thread_index());
    const int width = c.width, used = c.used;
    const auto blocks = static_cast<int>(gridDim.x);
    // Whole sectors of 32 bytes.
    const int each = ((width + blocks - 1) / blocks + 7) & ~7, begin = static_cast<int>(blockIdx.x) * each;
    const int count = min(each, width - begin);
#pragma unroll 1
    for (int e = thread; e < rows * count; e += 32 * kWarps) {
        const int t = e / count, i = begin + e - t * count;
        const std::int64_t place = static_cast<std::int64_t>(t) * width + i;
        float x = load_flagged(at.x + place);
        const float* const out = at.buffer + plan.out_rows + static_cast<std::int64_t>(t) * used * width + i;
        float y = 0.0f;
        constexpr int kAtOnce = 8;
#pragma unroll 1
        for (int first = 0; first < used; first += kAtOnce) {
            float value[kAtOnce];
#pragma unroll
            for (int k = 0; k < kAtOnce; ++k) {
                value[k] = first + k < used ? load_flagged(out + static_cast<std::int64_t>(first + k) * width) : 0.0f;
            }
#pragma unroll
            for (int k = 0; k < kAtOnce; ++k) {
                if (first + k >= used) break;
                while (not_ready(value[k])) {
                    value[k] = load_flagged(out + static_cast<std::int64_t>(first + k) * width);
                }
                y = fmaf(lists.weight[t * used + first + k], value[k], y);
            }
        }
        while (not_ready(x)) x = load_flagged(at.x + place);
        at.out[place] = c.stream_scale * fmaf(c.scale, y, x);
    }
}

// The step, by all multiplying warps. `lists_at`: its shared memory. Not inlined, so that it takes no registers from
// the matrix steps.
template <QuantType kDense, int kWarps>
__device__ __noinline__ void mixture_share(const MixtureConstants* constants, const MixturePlaces at, char* lists_at,
                                           int rows) {
    const std::uint32_t shared = shared_address(lists_at);
    MixtureLists& lists = MixtureLists::at(shared);
    constexpr int kWords = sizeof(MixtureConstants) / 4;
    const auto thread = static_cast<int>(thread_index());
    for (int i = thread; i < kWords; i += 32 * kWarps) {
        reinterpret_cast<std::uint32_t*>(&lists.constants)[i] =
            __ldg(reinterpret_cast<const std::uint32_t*>(constants) + i);
    }
    meet_multipliers<kWarps>();
    if (thread == 0) {
        const MixturePlan& plan = lists.plan;
        MixtureConstants& m = lists.constants;
        m.router.rows = rows;
        m.router.to.choice = lists.choice;
        m.router.to.weight = lists.weight;
        m.router.to.tiles = lists.tiles;
        m.router.to.tile_count = &lists.tile_count;
        m.in.slots = m.out.slots = rows * m.router.used;
        m.in.x = at.x;
        m.in.out = at.buffer + plan.ff;
        m.out.x = at.buffer + plan.ff;
        m.out.out = at.buffer + plan.out_rows;
    }
    meet_multipliers<kWarps>();
    route_rows<kWarps>(shared, at.x, at.buffer, rows);
    multiply_chosen_as<kDense>(shared, false);
    meet_multipliers<kWarps>();
    multiply_chosen_as<kDense>(shared, true);
    sum_slots<kWarps>(shared, at, rows);
}

}  // namespace foresay::kernels::cuda
