// kernels/cuda/sampling/candidates.cuh: the candidates of a row in the shared memory of one CTA: cutting a row down to
// the best, and sorting them.
//
// Barriers: functions that take Shared contain barriers, so all threads of the CTA call them together. On return what
//           they leave in Shared can be read. Shared::number, ::prefix and ::last are used by most of them, so their
//           values last until the next call only.
// Reads:    what other CTAs have written is read with __ldcg, past L1.
// Identity: every choice is made by a total order or by integer sums, so the order in which threads come does not
//           matter.
#pragma once

#include <cfloat>
#include <cstdint>

#include "kernels/cuda/sampling/device_plan.h"
#include "kernels/sampling_steps.h"

namespace foresay::kernels::cuda::sampling {

using std::int32_t;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

inline constexpr int kThreads = 512;
inline constexpr int kGroup = 16;                // neighbouring ids of one thread: those of one Philox counter block
inline constexpr int kPart = kThreads * kGroup;  // ids of one CTA
inline constexpr int kFewKept = kThreads / 4;    // cuts that keep no more are bounded by the maximum of each thread
inline constexpr int kListRoom = 2048;  // candidates that may reach the bound; with more, select() reads the row
inline constexpr uint64_t kDead = ~uint64_t{0};  // a key that sorts after every candidate

// 27 KiB, one copy per CTA. `list` is scratch; ids and logits are the candidates between two steps.
struct Shared {
    uint64_t list[kListRoom];         // order keys while selecting and sorting
    uint64_t sums[kThreads];          // weights, or others, of the candidates up to each
    uint64_t warps[kThreads / 32];    // sums of a warp each
    double least;                     // what one thread tells all threads
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
inline __device__ BestTwo block_best(Shared& s, BestTwo two) {
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
inline __device__ void sort_list(Shared& s, int32_t n) {
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
inline __device__ int32_t power_of_two_above(int32_t n) {
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
inline __device__ float kth_largest_or_less(Shared& s, const float* values, int32_t n, int32_t k) {
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
inline __device__ int32_t cut_row(Shared& s, const float* x, int32_t vocab, const float* group_best, int32_t keep) {
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
inline __device__ int32_t sort_candidates(Shared& s, int32_t count) {
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

}  // namespace foresay::kernels::cuda::sampling
