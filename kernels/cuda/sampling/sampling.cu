#include "kernels/cuda/sampling/sampling.h"

#include <algorithm>
#include <cfloat>
#include <cstring>

#include "kernels/draw_simd.h"
#include "kernels/noise.h"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

constexpr int kThreads = 512;
constexpr int kRun = 16;                  // neighbours that a thread takes: those of one block of coarse noise
constexpr int kPart = kThreads * kRun;    // of a row, for one block
constexpr int kFewKept = kThreads / 4;    // up to so many are kept by the quickest way
constexpr int kListRoom = 2048;           // candidates that reach the bound; more are selected the slow way
constexpr uint64_t kDead = ~uint64_t{0};  // sorts behind every candidate

__device__ float infinity() { return __int_as_float(0x7f800000); }

__device__ bool alive(float logit) { return logit > -infinity(); }

__device__ float penalised(float x, const DeviceStep& step, int32_t count) {
    x = x > 0.0f ? x / step.a : x * step.a;
    x -= static_cast<float>(count) * step.b;
    return x - step.c;
}

// The entry of `token` among `count` pairs (token, 32 bits of something) that ascend by token, or null.
__device__ const uint32_t* find(const uint32_t* entries, int32_t count, int32_t token) {
    int32_t low = 0, high = count;
    while (low < high) {
        const int32_t middle = (low + high) / 2;
        if (static_cast<int32_t>(entries[2 * middle]) < token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && static_cast<int32_t>(entries[2 * low]) == token ? entries + 2 * low : nullptr;
}

__device__ bool allowed(const uint32_t* bits, int32_t words, int32_t id) {
    return id / 32 < words && (bits[id / 32] >> (id % 32) & 1u) != 0;
}

// One elementwise step on the logit of one token.
__device__ float stepped(const DeviceStep& step, const uint32_t* words, int32_t id, float logit) {
    const uint32_t* list = words + step.first;
    switch (step.kind) {
        case DrawStepKind::bias:
            if (const uint32_t* entry = find(list, step.count, id)) logit += math::of_bits(entry[1]);
            return logit;
        case DrawStepKind::penalties:
            if (const uint32_t* entry = find(list, step.count, id)) {
                logit = penalised(logit, step, static_cast<int32_t>(entry[1]));
            }
            return logit;
        case DrawStepKind::mask:
            return allowed(list, step.count, id) ? logit : -infinity();
        default:
            return logit / step.a;
    }
}

__device__ uint32_t rising(float value) {
    const uint32_t bits = math::bits_of(value);
    return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}

struct Shared {
    uint64_t list[kListRoom];
    uint64_t sums[kThreads];
    float logits[kMostCandidates];
    int32_t ids[kMostCandidates];
    float partial[3][kThreads / 32];  // of BestTwo: best, second, id
    int32_t counts[256];
    int32_t number;
    uint64_t prefix;
    bool last;
};

__device__ void merge(BestTwo& a, float best, float second, int32_t id) {
    if (id < 0) return;
    a.add(best, id);
    if (second > a.second) a.second = second;
}

// The two best of the block, in thread 0.
__device__ BestTwo block_best(Shared& s, BestTwo two) {
    for (int offset = 16; offset > 0; offset >>= 1) {
        const float best = __shfl_down_sync(0xffffffffu, two.best, offset);
        const float second = __shfl_down_sync(0xffffffffu, two.second, offset);
        const int32_t id = __shfl_down_sync(0xffffffffu, two.id, offset);
        merge(two, best, second, id);
    }
    if (threadIdx.x % 32 == 0) {
        s.partial[0][threadIdx.x / 32] = two.best;
        s.partial[1][threadIdx.x / 32] = two.second;
        s.partial[2][threadIdx.x / 32] = __int_as_float(two.id);
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < kThreads / 32; ++warp) {
            merge(two, s.partial[0][warp], s.partial[1][warp], __float_as_int(s.partial[2][warp]));
        }
    }
    __syncthreads();
    return two;
}

// Sorts list[0, n) ascending; n is a power of two, at most kListRoom.
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

__device__ int32_t power_of_two_above(int32_t n) {
    int32_t power = 2;
    while (power < n) power <<= 1;
    return power;
}

// The k smallest of the n distinct keys key(i), fewer when others are dead, into the list, in any order. Eight bits at
// a time; reads all keys up to eight times.
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

// The number whose upper 16 bits are those of `prefix`, as rising() has them.
__device__ float bound_of(uint32_t prefix) {
    if (prefix <= rising(-FLT_MAX)) return -FLT_MAX;
    return math::of_bits((prefix & 0x80000000u) ? prefix & 0x7fffffffu : ~prefix);
}

// A bound that at least k of values[0, n) reach, close to the k-th largest: its upper 16 bits.
__device__ float kth_largest_or_less(Shared& s, const float* values, int32_t n, int32_t k) {
    if (n < k) return -FLT_MAX;
    uint32_t prefix = 0;
    if (k <= kFewKept) {
        // The largest of each thread's values stands for them: the k-th largest of those is reached by k values.
        float largest = -infinity();
#pragma unroll 8
        for (int32_t i = threadIdx.x; i < n; i += kThreads) largest = fmaxf(largest, __ldcg(values + i));
        const uint32_t bits = rising(largest);
        for (uint32_t bit = 1u << 31; bit >= 1u << 16; bit >>= 1) {
            if (__syncthreads_count(bits >= (prefix | bit)) >= k) prefix |= bit;
        }
        return bound_of(prefix);
    }
    for (int shift = 24; shift >= 16; shift -= 8) {
        if (threadIdx.x < 256) s.counts[threadIdx.x] = 0;
        __syncthreads();
        for (int32_t i = threadIdx.x; i < n; i += kThreads) {
            const uint32_t bits = rising(__ldcg(values + i));
            if (shift == 24 || bits >> 24 == prefix >> 24) atomicAdd(&s.counts[(bits >> shift) & 255], 1);
        }
        __syncthreads();
        if (threadIdx.x == 0) {
            int32_t byte = 255, left = k;
            for (; byte > 0 && s.counts[byte] < left; --byte) left -= s.counts[byte];
            s.number = left;
            s.prefix = prefix | static_cast<uint32_t>(byte) << shift;
        }
        __syncthreads();
        prefix = static_cast<uint32_t>(s.prefix);
        k = s.number;
        __syncthreads();
    }
    return bound_of(prefix);
}

// The `keep` best of the row into ids and logits, sorted; returns their number.
__device__ int32_t cut_row(Shared& s, const float* x, int32_t vocab, const float* best16, int32_t keep) {
    const int32_t runs = (vocab + kRun - 1) / kRun;
    const float bound = kth_largest_or_less(s, best16, runs, keep);
    if (threadIdx.x == 0) s.number = 0;
    __syncthreads();
    for (int32_t run = threadIdx.x; run < runs; run += kThreads) {
        if (!(__ldcg(best16 + run) >= bound)) continue;
        float logits[kRun];  // rows are padded to whole runs
#pragma unroll
        for (int i = 0; i < kRun; i += 4) {
            const float4 four = __ldcg(reinterpret_cast<const float4*>(x + run * kRun + i));
            logits[i] = four.x;
            logits[i + 1] = four.y;
            logits[i + 2] = four.z;
            logits[i + 3] = four.w;
        }
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
            const int32_t id = run * kRun + i;
            if (id >= vocab || !(logits[i] >= bound)) continue;
            const int32_t at = atomicAdd(&s.number, 1);
            if (at < kListRoom) s.list[at] = order_key(logits[i], id);
        }
    }
    __syncthreads();
    int32_t found = s.number;
    __syncthreads();
    if (found > kListRoom) {
        found = select(s, vocab, keep, [&](int32_t id) {
            const float logit = __ldcg(x + id);
            return alive(logit) ? order_key(logit, id) : kDead;
        });
    }
    const int32_t room = power_of_two_above(found);
    for (int32_t i = found + threadIdx.x; i < room; i += kThreads) s.list[i] = kDead;
    __syncthreads();
    sort_list(s, room);
    const int32_t count = min(found, keep);
    for (int32_t i = threadIdx.x; i < count; i += kThreads) {
        s.ids[i] = key_id(s.list[i]);
        s.logits[i] = fminf(key_logit(s.list[i]), FLT_MAX);
    }
    __syncthreads();
    return count;
}

// Drops what has died, and sorts; returns the number of candidates left.
__device__ int32_t sort_candidates(Shared& s, int32_t count) {
    const int32_t room = power_of_two_above(count);
    int32_t left = 0;
    for (int32_t i = threadIdx.x; i < room; i += kThreads) {
        const bool lives = i < count && alive(s.logits[i]);
        s.list[i] = lives ? order_key(fminf(s.logits[i], FLT_MAX), s.ids[i]) : kDead;
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

// sums[i] = weights of candidates 0..i, as 2^-40 fixed-point numbers; returns the sum of all. count <= kThreads.
__device__ uint64_t weigh(Shared& s, int32_t count) {
    const int32_t i = threadIdx.x;
    uint64_t weight = 0;
    if (i < count) {
        weight = static_cast<uint64_t>(static_cast<int64_t>(math::exp(s.logits[i] - s.logits[0]) * 1099511627776.0f));
    }
    s.sums[i] = weight;
    __syncthreads();
    for (int32_t step = 1; step < count; step <<= 1) {
        const uint64_t add = i >= step ? s.sums[i - step] : 0;
        __syncthreads();
        s.sums[i] += add;
        __syncthreads();
    }
    return s.sums[count - 1];
}

// The number of leading candidates for which keep(i) holds.
template <class Keep>
__device__ int32_t leading(Shared& s, int32_t count, const Keep& keep) {
    if (threadIdx.x == 0) s.number = count;
    __syncthreads();
    const int32_t i = threadIdx.x;
    if (i < count && !keep(i)) atomicMin(&s.number, i);
    __syncthreads();
    const int32_t result = s.number;
    __syncthreads();
    return result;
}

// A step that ranks sorted candidates; returns how many are left.
__device__ int32_t ranked(Shared& s, const DeviceStep& step, const NoiseKey& key, int32_t count) {
    static_assert(kMostCandidates <= kThreads && kMostCandidates == kCandidateCut);
    if (count == 0) return 0;
    if (step.kind == DrawStepKind::top_k) {
        return min(count, max(1, static_cast<int32_t>(min(step.k, 1u << 30))));
    }
    if (step.kind == DrawStepKind::min_p) {
        const float least = s.logits[0] + step.a;
        return max(1, leading(s, count, [&](int32_t i) { return s.logits[i] >= least; }));
    }
    if (step.kind == DrawStepKind::top_p) {
        const uint64_t sum = weigh(s, count);
        const uint64_t enough = static_cast<uint64_t>(static_cast<double>(step.a) * static_cast<double>(sum));
        return min(count, 1 + leading(s, count, [&](int32_t i) { return s.sums[i] < enough; }));
    }
    if (count < 2 || !(step.b <= 0.5f) || !(stage_uniform(key, step.k, 0) < step.a)) return count;
    const double least = static_cast<double>(step.b) * static_cast<double>(weigh(s, count));
    const int32_t likely = leading(s, count, [&](int32_t i) {
        return static_cast<double>(i == 0 ? s.sums[0] : s.sums[i] - s.sums[i - 1]) >= least;
    });
    if (likely < 2) return count;
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

// Draws from the candidates; in thread 0.
__device__ BestTwo draw_list(Shared& s, const DevicePlan& plan, int32_t count) {
    BestTwo two{-infinity(), -infinity(), -1};
    for (int32_t i = threadIdx.x; i < count; i += kThreads) {
        const float score = plan.greedy ? s.logits[i] : s.logits[i] + gumbel(plan.key, s.ids[i]);
        two.add(score, s.ids[i]);
    }
    return block_best(s, two);
}

// The two best of 16 neighbours whose values are in x, by score. `floor` is a score that two candidates reach.
__device__ void score_run(const float (&x)[kRun], int32_t first, const DevicePlan& plan, const uint32_t (&coarse)[4],
                          const float (&bounds)[kRun], float floor, BestTwo& two) {
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
        if (!alive(x[i]) || bounds[i] < floor) continue;
        const uint32_t byte = (coarse[i / 4] >> (8 * (i % 4))) & 255u;
        two.add(fminf(x[i], FLT_MAX) + gumbel_of(fine_noise(plan.key, first + i, byte)), first + i);
    }
}

// Draws from a part of the whole vocabulary; in thread 0.
__device__ BestTwo draw_part(Shared& s, const DevicePlan& plan, const float (&x)[kRun], int32_t first) {
    BestTwo two{-infinity(), -infinity(), -1};
    if (plan.greedy) {
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
            if (alive(x[i])) two.add(fminf(x[i], FLT_MAX), first + i);
        }
        return block_best(s, two);
    }
    const PhiloxBlock block = noise_block(static_cast<uint32_t>(first) / kRun, plan.key);
    uint32_t coarse[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) coarse[i] = block.word[i];
    // Each warp scores the two candidates of its lanes that may score highest; what they reach bounds the others.
    float bounds[kRun];
    int best = 0;
    float highest = -infinity();
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
        const uint32_t byte = (coarse[i / 4] >> (8 * (i % 4))) & 255u;
        bounds[i] = fminf(x[i], FLT_MAX) + gumbel_bound(byte);
        if (alive(x[i]) && bounds[i] > highest) {
            highest = bounds[i];
            best = i;
        }
    }
    float floor = -infinity();
    {
        float score = -infinity();
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
            if (i != best || !alive(x[i])) continue;
            const uint32_t byte = (coarse[i / 4] >> (8 * (i % 4))) & 255u;
            score = fminf(x[i], FLT_MAX) + gumbel_of(fine_noise(plan.key, first + i, byte));
        }
        // The second largest of the warp's scores is reached by two candidates.
        float top = score, second = -infinity();
        for (int offset = 16; offset > 0; offset >>= 1) {
            const float other_top = __shfl_xor_sync(0xffffffffu, top, offset);
            const float other_second = __shfl_xor_sync(0xffffffffu, second, offset);
            second = fmaxf(fminf(top, other_top), fmaxf(second, other_second));
            top = fmaxf(top, other_top);
        }
        floor = second;
    }
    score_run(x, first, plan, coarse, bounds, floor, two);
    return block_best(s, two);
}

__device__ void publish(const DrawCall& c, const DevicePlan& plan, const BestTwo& two, bool finite, int32_t count) {
    Drawn drawn;
    drawn.finite = finite;
    drawn.token = two.id;
    drawn.margin = two.id < 0 ? 0.0f : two.second > -infinity() ? two.best - two.second : infinity();
    c.slots[plan.slot] = drawn;
    HostDrawn* host = c.host_slots + plan.slot;
    host->drawn = drawn;
    host->candidates = count;
    __threadfence_system();
    *reinterpret_cast<volatile uint32_t*>(&host->serial) = c.serial;
}

__global__ void __launch_bounds__(kThreads, 1)
    draw_kernel(DrawCall c, const __grid_constant__ DevicePlan single, float* best16, float* best_two, int32_t* arrived,
                int32_t* broken) {
    __shared__ Shared s;
    __shared__ DevicePlan plan;
    const int32_t row = blockIdx.y, parts = gridDim.x;
    const DevicePlan* given = c.plans == nullptr ? &single : c.plans + row;
    for (int i = threadIdx.x; i < static_cast<int>(sizeof plan / 4); i += kThreads) {
        reinterpret_cast<uint32_t*>(&plan)[i] = reinterpret_cast<const uint32_t*>(given)[i];
    }
    __syncthreads();
    float* logits = c.logits + row * c.stride;
    const int32_t first = blockIdx.x * kPart + threadIdx.x * kRun;
    float x[kRun];
#pragma unroll
    for (int i = 0; i < kRun; i += 4) {
        float4 four = make_float4(-infinity(), -infinity(), -infinity(), -infinity());
        if (first + i + 3 < plan.vocab) {
            four = *reinterpret_cast<const float4*>(logits + first + i);
        } else {
            if (first + i < plan.vocab) four.x = logits[first + i];
            if (first + i + 1 < plan.vocab) four.y = logits[first + i + 1];
            if (first + i + 2 < plan.vocab) four.z = logits[first + i + 2];
        }
        x[i] = four.x;
        x[i + 1] = four.y;
        x[i + 2] = four.z;
        x[i + 3] = four.w;
    }
    bool odd = false;
#pragma unroll
    for (int i = 0; i < kRun; ++i) {
        odd = odd || (first + i < plan.vocab && (math::bits_of(x[i]) & 0x7f800000u) == 0x7f800000u);
    }
    if (__syncthreads_or(odd) && threadIdx.x == 0) atomicAdd(&broken[row], 1);
    for (int32_t step = 0; step < plan.whole; ++step) {
        const DeviceStep& now = plan.step[step];
#pragma unroll
        for (int i = 0; i < kRun; ++i) {
            if (first + i < plan.vocab) x[i] = stepped(now, c.words, first + i, x[i]);
        }
    }
    if (plan.keep == 0) {
        const BestTwo two = draw_part(s, plan, x, first);
        if (threadIdx.x == 0) {
            float* mine = best_two + (row * parts + static_cast<int32_t>(blockIdx.x)) * 3;
            mine[0] = two.best;
            mine[1] = two.second;
            mine[2] = __int_as_float(two.id);
        }
    } else {
        float top = -infinity();
#pragma unroll
        for (int i = 0; i < kRun; ++i) top = x[i] > top ? x[i] : top;
        const int32_t runs = (c.vocab + kRun - 1) / kRun;
        if (first / kRun < runs) best16[static_cast<int64_t>(row) * runs + first / kRun] = top;
        if (plan.whole > 0) {
#pragma unroll
            for (int i = 0; i < kRun; ++i) {
                if (first + i < plan.vocab) logits[first + i] = x[i];
            }
        }
    }
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        s.last = atomicAdd(&arrived[row], 1) == parts - 1;
        if (s.last) arrived[row] = 0;
    }
    __syncthreads();
    if (!s.last) return;
    __threadfence();
    const bool finite = __ldcg(broken + row) == 0;
    __syncthreads();  // s.last is used again
    if (threadIdx.x == 0) broken[row] = 0;
    if (plan.keep == 0) {
        BestTwo two{-infinity(), -infinity(), -1};
        if (threadIdx.x == 0) {
            for (int32_t part = 0; part < parts; ++part) {
                const float* other = best_two + (row * parts + part) * 3;
                merge(two, __ldcg(other), __ldcg(other + 1), __float_as_int(__ldcg(other + 2)));
            }
            publish(c, plan, two, finite, 0);
        }
        return;
    }
    const int32_t runs = (c.vocab + kRun - 1) / kRun;
    int32_t count = cut_row(s, logits, plan.vocab, best16 + static_cast<int64_t>(row) * runs, plan.keep);
    for (int32_t step = plan.whole; step < plan.steps; ++step) {
        const DeviceStep& now = plan.step[step];
        if (now.kind <= DrawStepKind::temperature) {
            for (int32_t i = threadIdx.x; i < count; i += kThreads) {
                s.logits[i] = stepped(now, c.words, s.ids[i], s.logits[i]);
            }
            __syncthreads();
            count = sort_candidates(s, count);
        } else {
            count = ranked(s, now, plan.key, count);
        }
    }
    if (plan.list != 0) {
        for (int32_t i = threadIdx.x; i < count; i += kThreads) {
            c.host_ids[plan.slot * kMostCandidates + i] = s.ids[i];
            c.host_logits[plan.slot * kMostCandidates + i] = s.logits[i];
        }
        __threadfence_system();
        __syncthreads();
    }
    const BestTwo two = draw_list(s, plan, count);
    if (threadIdx.x == 0) publish(c, plan, two, finite, count);
}

bool elementwise(DrawStepKind kind) { return kind <= DrawStepKind::temperature; }

// Where the first cut is and how many it keeps; 0 when the plan has none.
void first_cut(const DrawPlan& plan, int32_t& whole, int32_t& keep) {
    for (whole = 0; whole <= plan.step_count; ++whole) {
        keep = 0;
        const bool cut = plan.cut > 0 && (whole == plan.cut_at || whole == plan.step_count);
        if (cut) keep = plan.cut;
        if (whole == plan.step_count) return;
        const DrawStep& step = plan.steps[whole];
        if (!cut && step.kind == DrawStepKind::top_k) {
            keep = std::max(1, static_cast<int32_t>(std::min<uint32_t>(step.k, 1u << 30)));
        }
        if (keep > 0 || !elementwise(step.kind)) return;
    }
}

}  // namespace

static_assert(DrawStepKind::bias < DrawStepKind::temperature && DrawStepKind::penalties < DrawStepKind::temperature &&
              DrawStepKind::mask < DrawStepKind::temperature && DrawStepKind::temperature < DrawStepKind::top_k);

bool plan_runs(const DrawPlan& plan, int32_t row_length) {
    int32_t whole = 0, keep = 0;
    first_cut(plan, whole, keep);
    const int32_t vocab = plan.vocab > 0 ? std::min(plan.vocab, row_length) : row_length;
    if (keep == 0) return whole == plan.step_count;
    // A later cut of the plan must not lie behind a ranking of more.
    const bool again = plan.cut > 0 && plan.cut_at > whole && plan.cut_at <= plan.step_count && keep > plan.cut;
    return std::min(keep, vocab) <= kMostCandidates && !again;
}

std::int64_t plan_words(const DrawPlan& plan) {
    int64_t words = 0;
    for (int32_t i = 0; i < plan.step_count; ++i) {
        const DrawStep& step = plan.steps[i];
        words += static_cast<int64_t>(2 * step.values.size() + 2 * step.counts.size() + step.bits.size());
    }
    return words;
}

void encode_plan(const DrawPlan& plan, int32_t row_length, int32_t slot, DevicePlan& out, uint32_t* words,
                 int64_t& used) {
    out.key = plan.key;
    out.vocab = plan.vocab > 0 ? std::min(plan.vocab, row_length) : row_length;
    out.greedy = plan.greedy ? 1 : 0;
    out.steps = plan.step_count;
    out.slot = slot;
    out.list = plan.keep ? 1 : 0;
    first_cut(plan, out.whole, out.keep);
    out.keep = std::min(out.keep, kMostCandidates);
    for (int32_t i = 0; i < plan.step_count; ++i) {
        const DrawStep& step = plan.steps[i];
        DeviceStep& to = out.step[i];
        to = {step.kind, step.a, step.b, step.c, step.k, static_cast<int32_t>(used), 0};
        if (step.kind == DrawStepKind::bias) {
            to.count = static_cast<int32_t>(step.values.size());
            std::memcpy(words + used, step.values.data(), step.values.size_bytes());
            used += 2 * static_cast<int64_t>(step.values.size());
        } else if (step.kind == DrawStepKind::penalties) {
            to.count = static_cast<int32_t>(step.counts.size());
            std::memcpy(words + used, step.counts.data(), step.counts.size_bytes());
            used += 2 * static_cast<int64_t>(step.counts.size());
        } else if (step.kind == DrawStepKind::mask) {
            to.count = static_cast<int32_t>(step.bits.size());
            std::memcpy(words + used, step.bits.data(), step.bits.size_bytes());
            used += static_cast<int64_t>(step.bits.size());
        }
    }
}

void DrawMemory::allocate(int32_t rows, int32_t vocab) {
    const auto n = static_cast<std::size_t>(rows);
    best16 = DeviceBuffer<float>(n * static_cast<std::size_t>((vocab + kRun - 1) / kRun));
    best_two = DeviceBuffer<float>(n * static_cast<std::size_t>((vocab + kPart - 1) / kPart) * 3);
    arrived = DeviceBuffer<int32_t>(n);
    broken = DeviceBuffer<int32_t>(n);
    if (rows == 0) return;
    cuda_check(cudaMemset(arrived.data(), 0, arrived.bytes()), "cannot clear memory");
    cuda_check(cudaMemset(broken.data(), 0, broken.bytes()), "cannot clear memory");
}

void launch_draw(cudaStream_t stream, const DrawCall& call, const DevicePlan& single) {
    const dim3 grid(static_cast<unsigned>((call.candidates + kPart - 1) / kPart), static_cast<unsigned>(call.rows));
    draw_kernel<<<grid, kThreads, 0, stream>>>(call, single, call.memory->best16.data(), call.memory->best_two.data(),
                                               call.memory->arrived.data(), call.memory->broken.data());
    launched("draw");
}

}  // namespace foresay::kernels::cuda
