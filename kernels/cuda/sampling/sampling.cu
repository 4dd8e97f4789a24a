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
// matter. The arithmetic that decides is in kernels/sampling_steps.h, shared with the host. A new step belongs there
// first, then into stepped() (elementwise) or ranked().
//
// Barriers: functions that take Shared contain barriers, so all threads of the CTA call them together. On return what
//           they leave in Shared can be read. Shared::number, ::prefix and ::last are used by most of them, so their
//           values last until the next call only.
// Reads:    phase 2 reads what other CTAs have written with __ldcg, past L1.

#include "kernels/cuda/sampling/sampling.h"

#include <cfloat>

#include "kernels/sampling_steps.h"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

constexpr int kThreads = 512;
constexpr int kGroup = 16;                // neighbouring ids of one thread: those of one Philox counter block
constexpr int kPart = kThreads * kGroup;  // ids of one CTA
constexpr int kFewKept = kThreads / 4;    // a cut that keeps at most so many is bounded by the maximum of each thread
constexpr int kListRoom = 2048;           // candidates that may reach the bound; with more, select() reads the row
constexpr uint64_t kDead = ~uint64_t{0};  // a key that sorts after every candidate

// --------------------------------------------------------------------------------------------- order, in shared memory

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

// 26 KiB, one copy per CTA. `list` is scratch; ids and logits are the candidates between two steps.
struct Shared {
    uint64_t list[kListRoom];         // order keys while selecting and sorting
    uint64_t sums[kThreads];          // weights of the candidates up to each
    float logits[kMostCandidates];    // the candidates, best first
    int32_t ids[kMostCandidates];     // likewise
    float partial[3][kThreads / 32];  // of BestTwo, by warp: best, second, id
    int32_t counts[256];              // histogram of one byte
    int32_t number;                   // what one thread tells all threads; so are the next two
    uint64_t prefix;
    bool last;
};

// The two best of all threads, returned to thread 0; other threads get partial results. Down a warp by shuffles, then
// over the warps by thread 0. merge() is associative, so the tree does not matter.
__device__ BestTwo block_best(Shared& s, BestTwo two) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        const float best = __shfl_down_sync(0xffffffffu, two.best, offset);
        const float second = __shfl_down_sync(0xffffffffu, two.second, offset);
        const int32_t id = __shfl_down_sync(0xffffffffu, two.id, offset);
        two.merge(best, second, id);
    }
    if (threadIdx.x % 32 == 0) {
        s.partial[0][threadIdx.x / 32] = two.best;
        s.partial[1][threadIdx.x / 32] = two.second;
        s.partial[2][threadIdx.x / 32] = __int_as_float(two.id);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < kThreads / 32; ++warp) {
            two.merge(s.partial[0][warp], s.partial[1][warp], __float_as_int(s.partial[2][warp]));
        }
    }
    __syncthreads();
    return two;
}

// Sorts list[0, n) ascending, bitonically; n is a power of two, at most kListRoom. Threads take pairs (low, high) that
// are `stride` apart; `up` is the direction of the sequence of `size` keys that the pair lies in.
__device__ void sort_list(Shared& s, int32_t n) {
    for (int32_t size = 2; size <= n; size <<= 1) {
        for (int32_t stride = size / 2; stride > 0; stride >>= 1) {
            for (int32_t i = threadIdx.x; i < n / 2; i += kThreads) {
                const int32_t low = 2 * i - (i & (stride - 1)), high = low + stride;
                const bool up = (low & size) == 0;
                const uint64_t a = s.list[low], b = s.list[high];
                if ((a > b) == up) {
                    s.list[low] = b;
                    s.list[high] = a;
                }
            }
            __syncthreads();
        }
    }
}

// The least power of two from n on, at least 2.
__device__ int32_t power_of_two_above(int32_t n) {
    int32_t power = 2;
    while (power < n) power <<= 1;
    return power;
}

// Puts the k smallest of the n distinct keys key(i) into the list, in any order; fewer when the others are dead.
// Returns their number. A radix select: `prefix` holds the upper bits of the k-th smallest key as far as they are
// known; each pass counts the next byte of the keys with that prefix. Reads all keys up to nine times.
template <class Key>
__device__ int32_t select(Shared& s, int32_t n, int32_t k, const Key& key) {
    uint64_t prefix = 0;
    int shift = 56;
    int32_t wanted = k;
    for (;; shift -= 8) {
        if (threadIdx.x < 256) s.counts[threadIdx.x] = 0;
        __syncthreads();
        for (int32_t i = threadIdx.x; i < n; i += kThreads) {
            const uint64_t value = key(i);
            if (shift < 56 && (value ^ prefix) >> (shift + 8) != 0) continue;
            atomicAdd(&s.counts[(value >> shift) & 255], 1);
        }
        __syncthreads();
        // The byte that the k-th smallest key has, and how many keys with this prefix and byte are wanted.
        if (threadIdx.x == 0) {
            int32_t byte = 0, left = wanted;
            for (; byte < 255 && s.counts[byte] < left; ++byte) left -= s.counts[byte];
            s.prefix = prefix | static_cast<uint64_t>(byte) << shift;
            s.number = left;
            s.last = s.counts[byte] <= left || shift == 0;  // all of this byte are taken
        }
        __syncthreads();
        prefix = s.prefix;
        wanted = s.number;
        const bool done = s.last;
        __syncthreads();
        if (done) break;
    }
    // Every key up to the prefix is one of the k smallest.
    if (threadIdx.x == 0) s.number = 0;
    __syncthreads();
    for (int32_t i = threadIdx.x; i < n; i += kThreads) {
        const uint64_t value = key(i);
        if (value == kDead || value >> shift > prefix >> shift) continue;
        s.list[atomicAdd(&s.number, 1)] = value;
    }
    __syncthreads();
    return s.number;
}

// A value that at least k of values[0, n) reach, close to the k-th largest; -FLT_MAX when n < k. Only the upper 16 bits
// are found, in either way: a bound that is a little low costs a few more keys to sort, and no candidate.
__device__ float kth_largest_or_less(Shared& s, const float* values, int32_t n, int32_t k) {
    if (n < k) return -FLT_MAX;
    uint32_t prefix = 0;
    if (k <= kFewKept) {
        // Few are kept: the k-th largest of the threads' maxima is a bound, since k values reach it. It is found bit by
        // bit, by counting the threads whose maximum has the bit too; no histogram, and one read of the values.
        float largest = -positive_infinity();
#pragma unroll 8
        for (int32_t i = threadIdx.x; i < n; i += kThreads) largest = fmaxf(largest, __ldcg(values + i));
        const uint32_t bits = rising_bits(largest);
        for (uint32_t bit = 1u << 31; bit >= 1u << 16; bit >>= 1) {
            if (__syncthreads_count(bits >= (prefix | bit)) >= k) prefix |= bit;
        }
        return prefix_bound(prefix);
    }
    // Else a radix select over two bytes, as in select(), but from the largest down.
    for (int shift = 24; shift >= 16; shift -= 8) {
        if (threadIdx.x < 256) s.counts[threadIdx.x] = 0;
        __syncthreads();
        for (int32_t i = threadIdx.x; i < n; i += kThreads) {
            const uint32_t bits = rising_bits(__ldcg(values + i));
            if (shift == 24 || bits >> 24 == prefix >> 24) atomicAdd(&s.counts[(bits >> shift) & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            const RankedByte at = kth_largest_byte(s.counts, k);
            s.number = at.rank;
            s.prefix = prefix | static_cast<uint32_t>(at.byte) << shift;
        }
        __syncthreads();
        prefix = static_cast<uint32_t>(s.prefix);
        k = s.number;
        __syncthreads();
    }
    return prefix_bound(prefix);
}

// The `keep` best of the row into ids and logits, sorted; returns their number. `x` is the row in global memory, with
// the leading steps applied; `group_best` has the largest logit of each 16 ids, so that groups without a candidate are
// never read. NaN fails every comparison with the bound.
__device__ int32_t cut_row(Shared& s, const float* x, int32_t vocab, const float* group_best, int32_t keep) {
    const int32_t groups = (vocab + kGroup - 1) / kGroup;
    const float bound = kth_largest_or_less(s, group_best, groups, keep);
    if (threadIdx.x == 0) s.number = 0;
    __syncthreads();
    for (int32_t group = threadIdx.x; group < groups; group += kThreads) {
        if (!(__ldcg(group_best + group) >= bound)) continue;
        float logits[kGroup];  // rows are padded to whole groups
#pragma unroll
        for (int i = 0; i < kGroup; i += 4) {
            const float4 four = __ldcg(reinterpret_cast<const float4*>(x + group * kGroup + i));
            logits[i] = four.x;
            logits[i + 1] = four.y;
            logits[i + 2] = four.z;
            logits[i + 3] = four.w;
        }
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
            const int32_t id = group * kGroup + i;
            if (id >= vocab || !(logits[i] >= bound)) continue;
            const int32_t at = atomicAdd(&s.number, 1);
            if (at < kListRoom) s.list[at] = order_key(logits[i], id);
        }
    }
    __syncthreads();
    int32_t found = s.number;
    __syncthreads();
    // Too many reach the bound, as in a row of equal logits: the list holds an arbitrary part of them, so starts over.
    if (found > kListRoom) {
        found = select(s, vocab, keep, [&](int32_t id) {
            const float logit = __ldcg(x + id);
            return is_candidate(logit) ? order_key(logit, id) : kDead;
        });
    }
    // The sort wants a power of two; dead keys go to the end.
    const int32_t room = power_of_two_above(found);
    for (int32_t i = found + threadIdx.x; i < room; i += kThreads) s.list[i] = kDead;
    __syncthreads();
    sort_list(s, room);
    const int32_t count = min(found, keep);
    for (int32_t i = threadIdx.x; i < count; i += kThreads) {
        s.ids[i] = key_id(s.list[i]);
        s.logits[i] = finite_logit(key_logit(s.list[i]));
    }
    __syncthreads();
    return count;
}

// After an elementwise step: drops candidates whose logit has become -inf or NaN, and sorts; returns the number of
// candidates left. A temperature keeps the order, so a sort that is not needed is skipped.
__device__ int32_t sort_candidates(Shared& s, int32_t count) {
    const int32_t room = power_of_two_above(count);
    int32_t left = 0;
    for (int32_t i = threadIdx.x; i < room; i += kThreads) {
        const bool lives = i < count && is_candidate(s.logits[i]);
        s.list[i] = lives ? order_key(finite_logit(s.logits[i]), s.ids[i]) : kDead;
        left += lives;
    }
    if (threadIdx.x == 0) s.number = 0;
    __syncthreads();
    if (left > 0) atomicAdd(&s.number, left);
    bool sorted = true;
    for (int32_t i = threadIdx.x; i + 1 < room; i += kThreads) sorted = sorted && s.list[i] <= s.list[i + 1];
    if (!__syncthreads_and(sorted)) sort_list(s, room);
    const int32_t alive_count = s.number;
    for (int32_t i = threadIdx.x; i < alive_count; i += kThreads) {
        s.ids[i] = key_id(s.list[i]);
        s.logits[i] = key_logit(s.list[i]);
    }
    __syncthreads();
    return alive_count;
}

// ------------------------------------------------------------------------------------------------------- ranking steps

// sums[i] = the weights of candidates 0..i, summed; returns the sum of all. 0 < count <= kThreads. A Hillis-Steele scan
// of 64-bit integers, so the bits do not depend on its shape.
__device__ uint64_t weigh(Shared& s, int32_t count) {
    const int32_t i = threadIdx.x;
    s.sums[i] = i < count ? fixed_weight(s.logits[i], s.logits[0]) : 0;
    __syncthreads();
    for (int32_t step = 1; step < count; step <<= 1) {
        const uint64_t add = i >= step ? s.sums[i - step] : 0;
        __syncthreads();
        s.sums[i] += add;
        __syncthreads();
    }
    return s.sums[count - 1];
}

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

// A ranking step on sorted candidates; returns how many are left. They stay sorted, and all steps but xtc only drop
// candidates from the end, so ids and logits need no change.
__device__ int32_t ranked(Shared& s, const DeviceStep& step, const NoiseKey& key, int32_t count) {
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
    // xtc
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
// the next launch. Fence, count, fence: each CTA's writes are before its arrival, and the last one's reads after all.
__device__ bool last_of_row(Shared& s, int32_t* arrived, int32_t parts) {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        s.last = atomicAdd(arrived, 1) == parts - 1;
        if (s.last) *arrived = 0;
    }
    __syncthreads();
    const bool last = s.last;
    __syncthreads();  // select() writes it again
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

// Grid: x: parts of the largest vocabulary of the plans; y: rows. Rows with a smaller vocabulary have empty parts,
// which arrive all the same. `single`: the plan of a launch with one row and no lists; else plans are in c.plans.
__global__ void __launch_bounds__(kThreads, 1)
    sampling_kernel(SamplingCall c, const __grid_constant__ DevicePlan single, float* group_best, float* part_best,
                    int32_t* arrived, int32_t* nonfinite) {
    __shared__ Shared s;
    __shared__ DevicePlan plan;
    const int32_t row = blockIdx.y, parts = gridDim.x;
    const int32_t groups = (c.vocab + kGroup - 1) / kGroup;
    const int32_t first = blockIdx.x * kPart + threadIdx.x * kGroup;
    float* logits = c.logits + row * c.stride;
    group_best += static_cast<int64_t>(row) * groups;
    part_best += static_cast<int64_t>(row) * parts * 3;
    // The plan goes to shared memory, because steps are indexed by a variable.
    const DevicePlan* given = c.plans == nullptr ? &single : c.plans + row;
    for (int i = threadIdx.x; i < static_cast<int>(sizeof plan / 4); i += kThreads) {
        reinterpret_cast<uint32_t*>(&plan)[i] = reinterpret_cast<const uint32_t*>(given)[i];
    }
    __syncthreads();

    float x[kGroup];
    load_group(logits, first, plan.vocab, x);
    bool seen = false;  // a NaN or an infinity
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
        seen = seen || (first + i < plan.vocab && (math::bits_of(x[i]) & 0x7f800000u) == 0x7f800000u);
    }
    if (__syncthreads_or(seen) && threadIdx.x == 0) atomicAdd(&nonfinite[row], 1);
    for (int32_t step = 0; step < plan.whole; ++step) {
        const DeviceStep& now = plan.step[step];
#pragma unroll
        for (int i = 0; i < kGroup; ++i) {
            if (first + i < plan.vocab) x[i] = stepped(now, c.words, first + i, x[i]);
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
    if (!last_of_row(s, &arrived[row], parts)) return;

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
    if (rows == 0) return;
    cuda_check(cudaMemset(arrived.data(), 0, arrived.bytes()), "cannot clear memory");
    cuda_check(cudaMemset(nonfinite.data(), 0, nonfinite.bytes()), "cannot clear memory");
}

void launch_sampling(cudaStream_t stream, const SamplingCall& call, const DevicePlan& single) {
    const dim3 grid(static_cast<unsigned>((call.candidates + kPart - 1) / kPart), static_cast<unsigned>(call.rows));
    sampling_kernel<<<grid, kThreads, 0, stream>>>(call, single, call.memory->group_best.data(),
                                                   call.memory->part_best.data(), call.memory->arrived.data(),
                                                   call.memory->nonfinite.data());
    launched("sample");
}

}  // namespace foresay::kernels::cuda
