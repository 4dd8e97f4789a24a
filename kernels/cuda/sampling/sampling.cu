// Samples one token per row of logits by a DevicePlan. One kernel, one launch; grid (parts of a row, rows).
//
// Phase 1, every CTA: its part is 512 threads x 16 neighbouring ids, held in registers. It notes NaN and infinities,
// applies the plan's leading elementwise steps, and leaves one of two things in global memory:
//   no cut (plan.keep == 0): the two best scores of the part, noise included      -> part_best[row, part]
//   a cut:                   the largest logit of every 16 ids, one per thread     -> group_best[row, group]
//                            and, if steps have changed them, the logits themselves, in place
// Then it counts itself in arrived[row]. CTAs whose row is not complete yet end here: none waits for another.
//
// Phase 2, the CTA that arrives last in its row:
//   no cut: thread 0 merges the parts.
//   a cut:  the k-th largest of group_best is a lower bound of the k-th largest logit, and few logits reach it. They go
//           into Shared::list as order keys and are sorted; the best k become Shared::ids and ::logits. The remaining
//           steps run on those, one candidate per thread (kMostCandidates <= kThreads). All threads score them.
// Thread 0 publishes the token: to the slot on the device, which a later embed reads, and to the host, which polls the
// serial number written last.
//
// Every choice is made by a total order or by integer sums, so the order in which threads and CTAs come does not
// matter. The arithmetic that decides is in kernels/sampling_steps.h and sampling_cutoffs.h, shared with the host. A
// new step belongs there first, then into stepped() (elementwise) or ranked() (ranking.cuh).
//
// A top_n_sigma before the cut depends on the whole row. A kernel before this one, spread_kernel, finds the lowest
// logit that it keeps, from what the steps before it make of the row; here it is elementwise then. Its sums of float64
// have one order, that of MomentsTree: 16 ids of a thread, the 32 threads of a warp, the warps of a part, the parts of
// a row.
//
// Barriers: as candidates.cuh.
// Reads:    phase 2 reads what other CTAs have written with __ldcg, past L1.

#include "kernels/cuda/sampling/sampling.h"

#include <cfloat>

#include "kernels/cuda/sampling/candidates.cuh"
#include "kernels/cuda/sampling/ranking.cuh"
#include "kernels/sampling_steps.h"

namespace foresay::kernels::cuda {
namespace {

using namespace sampling;

// The plan of a row, to shared memory, because steps are indexed by a variable. `single`: the plan of a launch with one
// row and no lists; else plans are in c.plans.
__device__ void load_plan(DevicePlan& plan, const SamplingCall& c, const DevicePlan& single, int32_t row) {
    const DevicePlan* given = c.plans == nullptr ? &single : c.plans + row;
    for (int i = threadIdx.x; i < static_cast<int>(sizeof plan / 4); i += kThreads) {
        reinterpret_cast<uint32_t*>(&plan)[i] = reinterpret_cast<const uint32_t*>(given)[i];
    }
    __syncthreads();
}

// One elementwise step on the logit of one token. `words`: the lists of all plans of the launch.
__device__ float stepped(const DeviceStep& step, const uint32_t* words, int32_t id, float logit) {
    const uint32_t* list = words + step.first;
    switch (step.kind) {
        case SamplingStepKind::bias: {
            const auto* entry = find_entry(reinterpret_cast<const TokenValue*>(list), step.count, id);
            return entry != nullptr ? logit + entry->value : logit;
        }
        case SamplingStepKind::penalties: {
            const auto* entry = find_entry(reinterpret_cast<const TokenCount*>(list), step.count, id);
            return entry != nullptr ? penalised(logit, step.penalties, entry->count) : logit;
        }
        case SamplingStepKind::mask:
            return is_allowed(list, step.count, id) ? logit : -positive_infinity();
        default:
            return logit / step.temperature;
    }
}

// -------------------------------------------------------------------------------------------------------------- scores

// The two best scores of the candidates, returned to thread 0. The noise belongs to the id (law 2), so a candidate's
// score is the one that it would have without a cut.
__device__ BestTwo sample_list(Shared& s, const DevicePlan& plan, int32_t count) {
    BestTwo two = BestTwo::none();
    for (int32_t i = threadIdx.x; i < count; i += kThreads) {
        const float score = plan.greedy ? s.logits[i] : s.logits[i] + gumbel(plan.key, s.ids[i]);
        two.add(score, s.ids[i]);
    }
    return block_best(s, two);
}

// Adds the scores of one group to `two`. `coarse` has a byte of noise for each id, `bounds` the most that each id can
// score with it. Two candidates of the part reach `floor` (or it is -inf), so an id whose bound is lower cannot be one
// of the two best, and its fine noise and logarithms are not computed. That skips most ids.
__device__ void score_group(const float (&x)[kGroup], int32_t first, const DevicePlan& plan,
                            const uint32_t (&coarse)[4], const float (&bounds)[kGroup], float floor, BestTwo& two) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
        if (!is_candidate(x[i]) || bounds[i] < floor) continue;
        const uint32_t byte = (coarse[i / 4] >> (8 * (i % 4))) & 255u;
        two.add(finite_logit(x[i]) + gumbel_of(fine_noise(plan.key, first + i, byte)), first + i);
    }
}

// Phase 1 of a plan without a cut: the two best scores of a part, returned to thread 0. `x`: the thread's group, from
// id `first` on.
__device__ BestTwo sample_part(Shared& s, const DevicePlan& plan, const float (&x)[kGroup], int32_t first) {
    BestTwo two = BestTwo::none();
    if (plan.greedy) {
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
            if (is_candidate(x[i])) two.add(finite_logit(x[i]), first + i);
        }
        return block_best(s, two);
    }
    // One Philox counter block has the coarse noise of the whole group.
    const PhiloxBlock block = noise_block(static_cast<uint32_t>(first) / kGroup, plan.key);
    uint32_t coarse[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) coarse[i] = block.word[i];
    // Each lane scores the one of its candidates that may score highest. The second best of the warp's 32 scores is the
    // floor: two candidates reach it.
    float bounds[kGroup];
    int best = 0;
    float highest = -positive_infinity();
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
        const uint32_t byte = (coarse[i / 4] >> (8 * (i % 4))) & 255u;
        bounds[i] = finite_logit(x[i]) + gumbel_bound(byte);
        if (is_candidate(x[i]) && bounds[i] > highest) {
            highest = bounds[i];
            best = i;
        }
    }
    float floor = -positive_infinity();
    {
        float score = -positive_infinity();
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
            if (i != best || !is_candidate(x[i])) continue;
            const uint32_t byte = (coarse[i / 4] >> (8 * (i % 4))) & 255u;
            score = finite_logit(x[i]) + gumbel_of(fine_noise(plan.key, first + i, byte));
        }
        // The two best of the warp, by a butterfly: all lanes end with the same pair.
        float top = score, second = -positive_infinity();
        for (int offset = 16; offset > 0; offset >>= 1) {
            const float other_top = __shfl_xor_sync(0xffffffffu, top, offset);
            const float other_second = __shfl_xor_sync(0xffffffffu, second, offset);
            second = fmaxf(fminf(top, other_top), fmaxf(second, other_second));
            top = fmaxf(top, other_top);
        }
        floor = second;
    }
    score_group(x, first, plan, coarse, bounds, floor, two);
    return block_best(s, two);
}

// -------------------------------------------------------------------------------------------------------------- phases

// The token of a row, to its slot on the device and to the host. Called by one thread. The serial number is written
// last, after a fence of the whole system: the host takes a slot with the new serial number as complete, candidates
// included, which must have been written (and fenced) before.
__device__ void publish(const SamplingCall& c, const DevicePlan& plan, const BestTwo& two, bool finite, int32_t count) {
    const SampledToken sampled{two.id, two.margin(), finite};
    c.slots[plan.slot] = sampled;
    HostToken* host = c.host_slots + plan.slot;
    host->sampled = sampled;
    host->candidates = count;
    __threadfence_system();
    *reinterpret_cast<volatile uint32_t*>(&host->serial) = c.serial;
}

// The logits of ids first, first + 1, ..., in 16-byte loads; -inf beyond the vocabulary, so that they are no
// candidates.
__device__ void load_group(const float* logits, int32_t first, int32_t vocab, float (&x)[kGroup]) {
    const float none = -positive_infinity();
#pragma unroll
    for (int i = 0; i < kGroup; i += 4) {
        float4 four = make_float4(none, none, none, none);
        if (first + i + 3 < vocab) {
            four = *reinterpret_cast<const float4*>(logits + first + i);
        } else {
            if (first + i < vocab) four.x = logits[first + i];
            if (first + i + 1 < vocab) four.y = logits[first + i + 1];
            if (first + i + 2 < vocab) four.z = logits[first + i + 2];
        }
        x[i] = four.x;
        x[i + 1] = four.y;
        x[i + 2] = four.z;
        x[i + 3] = four.w;
    }
}

// Phase 1 of a plan with a cut: the largest of the thread's group, and what the steps have made of its logits. Ids past
// the vocabulary are -inf here, and groups past the row are not written.
__device__ void leave_group(const float (&x)[kGroup], int32_t first, int32_t groups, const DevicePlan& plan,
                            float* logits, float* group_best) {
    float top = -positive_infinity();
#pragma unroll
    for (int i = 0; i < kGroup; ++i) top = x[i] > top ? x[i] : top;
    if (first / kGroup < groups) group_best[first / kGroup] = top;
    if (plan.whole == 0) return;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
        if (first + i < plan.vocab) logits[first + i] = x[i];
    }
}

// Whether this CTA is the last of its row; then it sees what all others have written, and `arrived` is zero again, for
// the next launch. `told` is in shared memory. Fence, count, fence: each CTA's writes are before its arrival, and the
// last one's reads after all.
__device__ bool last_of_row(bool& told, int32_t* arrived, int32_t parts) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        told = atomicAdd(arrived, 1) == parts - 1;
        if (told) *arrived = 0;
    }
    __syncthreads();
    const bool last = told;
    __syncthreads();  // select() writes Shared::last again
    if (last) __threadfence();
    return last;
}

// Phase 2 of a plan with a cut: cut, the steps after it, in between candidates to the host if it wants them, token.
__device__ void finish_cut(Shared& s, const SamplingCall& c, const DevicePlan& plan, const float* logits,
                           const float* group_best, bool finite) {
    int32_t count = cut_row(s, logits, plan.vocab, group_best, plan.keep);
    int32_t listed = 0;
    for (int32_t step = plan.whole; step <= plan.steps; ++step) {
        if (plan.list == step + 1) {
            listed = count;
            for (int32_t i = threadIdx.x; i < count; i += kThreads) {
                c.host_ids[plan.slot * kMostCandidates + i] = s.ids[i];
                c.host_logits[plan.slot * kMostCandidates + i] = s.logits[i];
            }
            __threadfence_system();
            __syncthreads();
        }
        if (step == plan.steps) break;
        const DeviceStep& now = plan.step[step];
        // Elementwise steps may change the order, ranking steps need it: hence the sort in between.
        if (is_elementwise(now.kind)) {
            for (int32_t i = threadIdx.x; i < count; i += kThreads) {
                s.logits[i] = stepped(now, c.words, s.ids[i], s.logits[i]);
            }
            __syncthreads();
            count = sort_candidates(s, count);
        } else {
            count = ranked(s, now, plan.key, count);
        }
    }
    const BestTwo two = sample_list(s, plan, count);
    if (threadIdx.x == 0) publish(c, plan, two, finite, listed);
}

// Step `step` of a plan on the thread's group; ids past the vocabulary stay -inf.
__device__ void step_group(float (&x)[kGroup], int32_t first, const DevicePlan& plan, int32_t step,
                           const uint32_t* words) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
        if (first + i < plan.vocab) x[i] = stepped(plan.step[step], words, first + i, x[i]);
    }
}

// least[row] = the lowest logit that the row's top_n_sigma keeps; rows without one are left alone. Grid as below. Each
// CTA leaves the moments of its part in part_moments[row, part]; the one that arrives last merges them.
__global__ void __launch_bounds__(kThreads, 1) spread_kernel(SamplingCall c, const __grid_constant__ DevicePlan single,
                                                             Moments* part_moments, double* least, int32_t* arrived) {
    static_assert(kGroup == kMomentsGroup);
    __shared__ DevicePlan plan;
    __shared__ Moments warps[kThreads / 32];
    __shared__ bool told;
    const int32_t row = blockIdx.y, parts = gridDim.x;
    const int32_t first = blockIdx.x * kPart + threadIdx.x * kGroup;
    part_moments += static_cast<int64_t>(row) * parts;
    load_plan(plan, c, single, row);
    if (plan.spread == 0) return;

    float x[kGroup];
    load_group(c.logits + row * c.stride, first, plan.vocab, x);
    for (int32_t step = 0; step + 1 < plan.spread; ++step) step_group(x, first, plan, step, c.words);
    const int32_t warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    Moments m = warp_moments(moments_of(x, kGroup));
    if (lane == 0) warps[warp] = m;
    __syncthreads();
    if (warp == 0) {
        m = warp_moments(lane < kThreads / 32 ? warps[lane] : Moments::none());
        if (lane == 0) part_moments[blockIdx.x] = m;
    }
    if (!last_of_row(told, &arrived[row], parts) || warp != 0) return;

    MomentsTree tree;
    for (int32_t begin = 0; begin < parts; begin += 32) {
        m = Moments::none();
        if (begin + lane < parts) {
            const Moments* part = part_moments + begin + lane;
            m = {__ldcg(&part->count), __ldcg(&part->best), __ldcg(&part->mean), __ldcg(&part->squares)};
        }
        m = warp_moments(m);
        if (lane == 0) tree.add(m);
    }
    if (lane == 0) least[row] = least_within(plan.step[plan.spread - 1].limit, tree.all());
}

// Grid: x: parts of the largest vocabulary of the plans; y: rows. Rows with a smaller vocabulary have empty parts,
// which arrive all the same. `least`: of spread_kernel.
__global__ void __launch_bounds__(kThreads, 1)
    sampling_kernel(SamplingCall c, const __grid_constant__ DevicePlan single, float* group_best, float* part_best,
                    int32_t* arrived, int32_t* nonfinite, const double* least) {
    __shared__ Shared s;
    __shared__ DevicePlan plan;
    const int32_t row = blockIdx.y, parts = gridDim.x;
    const int32_t groups = (c.vocab + kGroup - 1) / kGroup;
    const int32_t first = blockIdx.x * kPart + threadIdx.x * kGroup;
    float* logits = c.logits + row * c.stride;
    group_best += static_cast<int64_t>(row) * groups;
    part_best += static_cast<int64_t>(row) * parts * 3;
    load_plan(plan, c, single, row);

    float x[kGroup];
    load_group(logits, first, plan.vocab, x);
    bool seen = false;  // a NaN or an infinity
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
        seen = seen || (first + i < plan.vocab && (math::bits_of(x[i]) & 0x7f800000u) == 0x7f800000u);
    }
    if (__syncthreads_or(seen) && threadIdx.x == 0) atomicAdd(&nonfinite[row], 1);
    for (int32_t step = 0; step < plan.whole; ++step) {
        if (plan.spread == step + 1) {
            const double lowest = least[row];  // of spread_kernel
#pragma unroll
            for (int i = 0; i < kGroup; ++i) x[i] = is_within(x[i], lowest) ? x[i] : -positive_infinity();
        } else {
            step_group(x, first, plan, step, c.words);
        }
    }
    if (plan.keep == 0) {
        const BestTwo two = sample_part(s, plan, x, first);
        if (threadIdx.x == 0) {
            float* mine = part_best + 3 * blockIdx.x;
            mine[0] = two.best;
            mine[1] = two.second;
            mine[2] = __int_as_float(two.id);
        }
    } else {
        leave_group(x, first, groups, plan, logits, group_best);
    }
    if (!last_of_row(s.last, &arrived[row], parts)) return;

    // Phase 2. `nonfinite` is reset for the next launch after all threads have read it.
    const bool finite = __ldcg(nonfinite + row) == 0;
    __syncthreads();
    if (threadIdx.x == 0) nonfinite[row] = 0;
    if (plan.keep > 0) {
        finish_cut(s, c, plan, logits, group_best, finite);
    } else if (threadIdx.x == 0) {
        BestTwo two = BestTwo::none();
        for (int32_t part = 0; part < parts; ++part) {
            const float* other = part_best + 3 * part;
            two.merge(__ldcg(other), __ldcg(other + 1), __float_as_int(__ldcg(other + 2)));
        }
        publish(c, plan, two, finite, 0);
    }
}

}  // namespace

// The counters begin at 0; each launch leaves them so (last_of_row, sampling_kernel).
void SamplingMemory::allocate(int32_t rows, int32_t vocab) {
    const auto n = static_cast<std::size_t>(rows);
    group_best = DeviceBuffer<float>(n * static_cast<std::size_t>((vocab + kGroup - 1) / kGroup));
    part_best = DeviceBuffer<float>(n * static_cast<std::size_t>((vocab + kPart - 1) / kPart) * 3);
    arrived = DeviceBuffer<int32_t>(n);
    nonfinite = DeviceBuffer<int32_t>(n);
    part_moments = DeviceBuffer<Moments>(n * static_cast<std::size_t>((vocab + kPart - 1) / kPart));
    least = DeviceBuffer<double>(n);
    if (rows == 0) return;
    cuda_check(cudaMemset(arrived.data(), 0, arrived.bytes()), "cannot clear memory");
    cuda_check(cudaMemset(nonfinite.data(), 0, nonfinite.bytes()), "cannot clear memory");
}

void launch_sampling(cudaStream_t stream, const SamplingCall& call, const DevicePlan& single) {
    const dim3 grid(static_cast<unsigned>((call.candidates + kPart - 1) / kPart), static_cast<unsigned>(call.rows));
    const SamplingMemory& memory = *call.memory;
    if (call.spread) {
        spread_kernel<<<grid, kThreads, 0, stream>>>(call, single, memory.part_moments.data(), memory.least.data(),
                                                     memory.arrived.data());
        launched("sample");
    }
    sampling_kernel<<<grid, kThreads, 0, stream>>>(call, single, memory.group_best.data(), memory.part_best.data(),
                                                   memory.arrived.data(), memory.nonfinite.data(), memory.least.data());
    launched("sample");
}

}  // namespace foresay::kernels::cuda
