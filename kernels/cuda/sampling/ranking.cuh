// kernels/cuda/sampling/ranking.cuh: the steps of a plan that rank candidates, on those that a CTA holds.
//
// Data flow: Shared::ids and ::logits are the candidates, best first, one for each thread. Integer sums over them go
//           through Shared::sums; spreads are merged by the first warp, in the order of MomentsTree.
// Barriers: as candidates.cuh.
// Identity: the arithmetic is that of kernels/sampling_steps.h and kernels/sampling_cutoffs.h.
#pragma once

#include "kernels/cuda/sampling/candidates.cuh"
#include "kernels/sampling_cutoffs.h"

namespace foresay::kernels::cuda::sampling {

// sums[i] = the values of threads 0..i, summed; returns the sum of the first `count`, 0 < count <= kThreads; later ones
// are not complete. A Hillis-Steele scan of 64-bit integers, so the bits do not depend on its shape.
inline __device__ uint64_t scan(Shared& s, int32_t count, uint64_t value) {
    const int32_t i = threadIdx.x;
    s.sums[i] = value;
    __syncthreads();
    for (int32_t step = 1; step < count; step <<= 1) {
        const uint64_t add = i >= step ? s.sums[i - step] : 0;
        __syncthreads();
        s.sums[i] += add;
        __syncthreads();
    }
    return s.sums[count - 1];
}

// The weight of candidate i; 0 beyond them.
inline __device__ uint64_t weight_of(const Shared& s, int32_t count, int32_t i) {
    return i < count ? fixed_weight(s.logits[i], s.logits[0]) : 0;
}

// sums[i] = the weights of candidates 0..i, summed; returns the sum of all. 0 < count <= kThreads.
inline __device__ uint64_t weigh(Shared& s, int32_t count) { return scan(s, count, weight_of(s, count, threadIdx.x)); }

// The number of leading candidates for which keep(i) holds: the index of the first one for which it does not.
template <class Keep>
__device__ int32_t leading(Shared& s, int32_t count, const Keep& keep) {
    if (threadIdx.x == 0) s.number = count;
    __syncthreads();
    const int32_t i = threadIdx.x;  // one candidate per thread
    if (i < count && !keep(i)) atomicMin(&s.number, i);
    __syncthreads();
    const int32_t result = s.number;
    __syncthreads();
    return result;
}

// The sum of the values of all threads, to all threads.
inline __device__ uint64_t sum_of_all(Shared& s, uint64_t value) {
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_down_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0) s.warps[threadIdx.x / 32] = value;
    __syncthreads();
    uint64_t sum = 0;
#pragma unroll
    for (int warp = 0; warp < kThreads / 32; ++warp) sum += s.warps[warp];
    __syncthreads();
    return sum;
}

// `weight`: of the thread's candidate.
inline __device__ WeightSums weight_sums(Shared& s, int32_t count, uint64_t weight) {
    const int32_t i = threadIdx.x;
    WeightSums sums;
    sums.weight = sum_of_all(s, weight);
    sums.distance = sum_of_all(s, i < count ? weighed_distance(weight, s.logits[i], s.logits[0]) : 0);
    return sums;
}

inline __device__ Moments shuffled_down(const Moments& m, int offset) {
    Moments from;
    from.count = __shfl_down_sync(0xffffffffu, m.count, offset);
    from.best = __shfl_down_sync(0xffffffffu, m.best, offset);
    from.mean = __shfl_down_sync(0xffffffffu, m.mean, offset);
    from.squares = __shfl_down_sync(0xffffffffu, m.squares, offset);
    return from;
}

// Merges the moments of a warp's lanes as MomentsTree merges 32 that are added: neighbours first. Returned to lane 0;
// what the other lanes get has no meaning.
inline __device__ Moments warp_moments(Moments m) {
    for (int offset = 1; offset < 32; offset <<= 1) m = merged(m, shuffled_down(m, offset));
    return m;
}

inline __device__ int32_t keep_within(Shared& s, double limit, int32_t count) {
    static_assert(kMostCandidates <= 32 * kMomentsGroup, "one warp sees all candidates");
    if (threadIdx.x < 32) {
        const int32_t first = threadIdx.x * kMomentsGroup;
        const int32_t own = max(0, min(kMomentsGroup, count - first));
        const Moments all = warp_moments(own > 0 ? moments_of(s.logits + first, own) : Moments::none());
        if (threadIdx.x == 0) s.least = least_within(limit, all);
    }
    __syncthreads();
    const double least = s.least;
    return max(1, leading(s, count, [&](int32_t i) { return is_within(s.logits[i], least); }));
}

inline __device__ int32_t keep_tail_free(Shared& s, double limit, int32_t count) {
    if (count < 3) return count;
    weigh(s, count);
    const int32_t i = threadIdx.x;
    uint64_t own = 0;
    if (i + 2 < count) {
        const uint64_t before = i > 0 ? s.sums[i - 1] : 0;
        own = bend(s.sums[i] - before, s.sums[i + 1] - s.sums[i], s.sums[i + 2] - s.sums[i + 1]);
    }
    __syncthreads();
    const uint64_t all = scan(s, count - 2, own);
    if (all == 0) {
        __syncthreads();  // the next step may write to sums before all threads have read `all`
        return count;
    }
    return 1 + leading(s, count - 2, [&](int32_t at) { return tfs_goes_on(limit, s.sums[at], all); });
}

inline __device__ int32_t keep_typical(Shared& s, double limit, int32_t count) {
    const int32_t i = threadIdx.x;
    const WeightSums sums = weight_sums(s, count, weight_of(s, count, i));
    const double expected = expected_distance(sums);
    const int32_t room = power_of_two_above(count);
    if (i < room) s.list[i] = i < count ? typical_key(s.logits[i], s.logits[0], expected, i) : kDead;
    __syncthreads();
    sort_list(s, room);
    // From here on the thread looks at the candidate that is i-th in this order.
    const int32_t rank = i < count ? rank_of(s.list[i]) : count;
    scan(s, count, weight_of(s, count, rank));
    const uint64_t enough = typical_weight(limit, sums.weight);
    const int32_t kept = min(count, 1 + leading(s, count, [&](int32_t at) { return s.sums[at] < enough; }));
    if (i >= kept && i < count) s.logits[rank] = -positive_infinity();
    __syncthreads();
    return sort_candidates(s, count);  // drops those, and leaves the others in their order
}

// Changes the logits. Some that were apart may be equal now, or dead, hence the sort.
inline __device__ int32_t change_logits(Shared& s, const DeviceStep& step, int32_t count) {
    const int32_t i = threadIdx.x;
    if (step.kind == SamplingStepKind::smoothing) {
        const float best = s.logits[0];
        __syncthreads();
        if (i < count) s.logits[i] = smoothed(step.smoothing, s.logits[i], best);
    } else {
        const WeightSums sums = weight_sums(s, count, weight_of(s, count, i));
        const float temperature = dynamic_temperature(step.dynatemp, count, sums);
        if (i < count) s.logits[i] = s.logits[i] / temperature;
    }
    __syncthreads();
    return sort_candidates(s, count);
}

// The steps of kernels/sampling_cutoffs.h; count > 0. Not inlined, so that they cost other plans no registers.
__noinline__ __device__ static int32_t cut_off(Shared& s, const DeviceStep& step, int32_t count) {
    switch (step.kind) {
        case SamplingStepKind::top_n_sigma:
            return keep_within(s, step.limit, count);
        case SamplingStepKind::tfs:
            return keep_tail_free(s, step.limit, count);
        case SamplingStepKind::typical:
            return keep_typical(s, step.limit, count);
        case SamplingStepKind::dynatemp:
        case SamplingStepKind::smoothing:
            return change_logits(s, step, count);
        default:
            break;
    }
    const uint64_t weight = weight_of(s, count, threadIdx.x);
    const WeightSums sums = weight_sums(s, count, weight);
    const double least = least_probability(step, weight_of(s, count, 0), sums);
    // leading() asks each thread about its own candidate.
    return max(1, leading(s, count, [&](int32_t) { return is_probable(weight, sums.weight, least); }));
}

// A ranking step on sorted candidates; returns how many are left. They are sorted afterwards. Steps that only drop
// candidates from the end need not change ids and logits.
inline __device__ int32_t ranked(Shared& s, const DeviceStep& step, const NoiseKey& key, int32_t count) {
    static_assert(kMostCandidates <= kThreads);
    if (count == 0) return 0;
    if (step.kind == SamplingStepKind::top_k) return min(count, top_k_count(step.top_k));
    if (step.kind == SamplingStepKind::min_p) {
        const float least = min_p_logit(step.min_p_log, s.logits[0]);
        return max(1, leading(s, count, [&](int32_t i) { return s.logits[i] >= least; }));
    }
    if (step.kind == SamplingStepKind::top_p) {
        const uint64_t enough = top_p_weight(step.top_p, weigh(s, count));
        return min(count, 1 + leading(s, count, [&](int32_t i) { return s.sums[i] < enough; }));
    }
    if (step.kind != SamplingStepKind::xtc) return cut_off(s, step, count);
    if (count < 2 || !xtc_acts(step.xtc, key)) return count;
    const uint64_t sum = weigh(s, count);
    const int32_t likely = leading(s, count, [&](int32_t i) {
        return xtc_is_likely(step.xtc, i == 0 ? s.sums[0] : s.sums[i] - s.sums[i - 1], sum);
    });
    if (likely < 2) return count;
    // Drops all likely candidates but the last one. They lead, so the others move up, all of them at once.
    const int32_t dropped = likely - 1;
    const int32_t i = threadIdx.x;
    const bool moves = i + dropped < count;
    const int32_t id = moves ? s.ids[i + dropped] : 0;
    const float logit = moves ? s.logits[i + dropped] : 0.0f;
    __syncthreads();
    if (moves) {
        s.ids[i] = id;
        s.logits[i] = logit;
    }
    __syncthreads();
    return count - dropped;
}

}  // namespace foresay::kernels::cuda::sampling
