// How one source becomes a version per instruction set: the bodies below are always_inline and use GNU vector types
// only. FORESAY_SAMPLING_KERNELS wraps them in functions with a target attribute, so the compiler generates each body
// once per set. KernelTable picks the sets that the processor has, best first.
#include "kernels/sampling_simd.h"

#include <bit>
#include <cstring>
#include <limits>

#include "kernels/cpu_features.h"

namespace foresay::kernels {
namespace {

static_assert(std::endian::native == std::endian::little, "coarse noise is read as bytes of words");

#define FORESAY_INLINE inline __attribute__((always_inline))

using Float16 = float __attribute__((vector_size(64), aligned(4), may_alias));

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Upper bounds of G by coarse byte.
struct BoundTable {
    float bound[256];
    BoundTable() {
        for (std::uint32_t c = 0; c < 256; ++c) bound[c] = gumbel_bound(c);
    }
};
const BoundTable kBounds;

FORESAY_INLINE void lane_maxima(const float* x, std::int32_t n, float* lanes) {
    std::int32_t i = 0;
    for (; i + kChunk <= n; i += kChunk, lanes += kLanes) {
        Float16 top = Float16{} - kInfinity;
        for (std::int32_t row = 0; row < kChunk; row += kLanes) {
            Float16 value;
            std::memcpy(&value, x + i + row, sizeof value);
            top = value > top ? value : top;
        }
        std::memcpy(lanes, &top, sizeof top);
    }
    if (i == n) return;
    for (std::int32_t lane = 0; lane < kLanes; ++lane) {
        float top = -kInfinity;
        for (std::int32_t j = i + lane; j < n; j += kLanes) top = x[j] > top ? x[j] : top;
        lanes[lane] = top;
    }
}

using Byte16 = std::int8_t __attribute__((vector_size(16)));

FORESAY_INLINE std::int32_t collect(const float* x, std::int32_t n, const float* lanes, float threshold,
                                    std::uint64_t* keys) {
    std::int32_t found = 0;
    for (std::int32_t first = 0; first < n; first += kChunk, lanes += kLanes) {
        float top = lanes[0];
        for (int i = 1; i < kLanes; ++i) top = lanes[i] > top ? lanes[i] : top;
        if (!(top >= threshold)) continue;
        std::int32_t i = first;
        const std::int32_t last = first + kChunk < n ? first + kChunk : n;
        for (; i + kLanes <= last; i += kLanes) {
            Float16 values;
            std::memcpy(&values, x + i, sizeof values);
            const Byte16 reach = __builtin_convertvector(values >= threshold, Byte16) & 1;
            std::uint64_t halves[2];
            std::memcpy(halves, &reach, sizeof halves);
            for (int half = 0; half < 2; ++half) {
                for (std::uint64_t bits = halves[half]; bits != 0; bits &= bits - 1) {
                    const std::int32_t id = i + 8 * half + std::countr_zero(bits) / 8;
                    keys[found++] = order_key(x[id], id);
                }
            }
        }
        for (; i < last; ++i) {
            if (x[i] >= threshold) keys[found++] = order_key(x[i], i);
        }
    }
    return found;
}

FORESAY_INLINE void divide(float* x, std::int32_t n, float divisor) {
    for (std::int32_t i = 0; i < n; ++i) x[i] = x[i] / divisor;
}

FORESAY_INLINE std::uint64_t weigh(const float* x, std::int32_t n, float top, std::uint64_t* weights) {
    std::uint64_t sum = 0;
    for (std::int32_t i = 0; i < n; ++i) {
        weights[i] = fixed_weight(x[i], top);
        sum += weights[i];
    }
    return sum;
}

// The words of 16 Philox counter blocks, one per lane; `purpose` is counter word 0.
FORESAY_INLINE void philox_lanes(const std::uint32_t* purpose, const NoiseKey& key, std::uint32_t (*words)[kLanes]) {
    std::uint32_t c0[kLanes], c1[kLanes], c2[kLanes], c3[kLanes];
    for (int i = 0; i < kLanes; ++i) {
        c0[i] = purpose[i];
        c1[i] = key.index;
        c2[i] = static_cast<std::uint32_t>(key.branch);
        c3[i] = static_cast<std::uint32_t>(key.branch >> 32);
    }
    std::uint32_t k0 = static_cast<std::uint32_t>(key.seed);
    std::uint32_t k1 = static_cast<std::uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
        for (int i = 0; i < kLanes; ++i) {
            const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0[i];
            const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c2[i];
            c0[i] = static_cast<std::uint32_t>(b >> 32) ^ c1[i] ^ k0;
            c2[i] = static_cast<std::uint32_t>(a >> 32) ^ c3[i] ^ k1;
            c1[i] = static_cast<std::uint32_t>(b);
            c3[i] = static_cast<std::uint32_t>(a);
        }
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    for (int i = 0; i < kLanes; ++i) {
        words[0][i] = c0[i];
        words[1][i] = c1[i];
        words[2][i] = c2[i];
        words[3][i] = c3[i];
    }
}

// The coarse bytes of ids first..first+255.
FORESAY_INLINE void coarse_chunk(std::int32_t first, const NoiseKey& key, std::uint8_t* bytes) {
    std::uint32_t purpose[kLanes], words[4][kLanes], mixed[kLanes * 4];
    for (int i = 0; i < kLanes; ++i)
        purpose[i] = static_cast<std::uint32_t>(first) / 16u + static_cast<std::uint32_t>(i);
    philox_lanes(purpose, key, words);
    for (int i = 0; i < kLanes; ++i) {
        for (int w = 0; w < 4; ++w) mixed[i * 4 + w] = words[w][i];
    }
    std::memcpy(bytes, mixed, sizeof mixed);
}

// Scores one id, unless its upper bound is below `floor`, a lower bound of the final second-best score.
FORESAY_INLINE void consider(float logit, std::int32_t id, std::uint32_t coarse, const NoiseKey& key, float& floor,
                             BestTwo& two) {
    if (!is_candidate(logit) || logit + kBounds.bound[coarse] < floor) return;
    two.add(finite_logit(logit) + gumbel_of(fine_noise(key, id, coarse)), id);
    if (two.second > floor) floor = two.second;
}

FORESAY_INLINE BestTwo sample_whole(const float* x, std::int32_t n, const float* lanes, float floor,
                                    const NoiseKey& key) {
    BestTwo two = BestTwo::none();
    alignas(64) std::uint8_t coarse[kChunk];
    alignas(64) std::uint8_t flag[kChunk];
    for (std::int32_t first = 0; first < n; first += kChunk, lanes += kLanes) {
        float top = lanes[0];
        for (int i = 1; i < kLanes; ++i) top = lanes[i] > top ? lanes[i] : top;
        if (top + kGumbelMax < floor || top == -kInfinity) continue;
        coarse_chunk(first, key, coarse);
        const std::int32_t count = n - first < kChunk ? n - first : kChunk;
        const float* values = x + first;
        std::memset(flag, 0, sizeof flag);
        for (std::int32_t i = 0; i < count; ++i) {
            flag[i] = static_cast<std::uint8_t>((values[i] + kGumbelUsual >= floor ? 1 : 0) | (coarse[i] == 0 ? 1 : 0));
        }
        for (std::int32_t word = 0; word < kChunk; word += 8) {
            std::uint64_t eight;
            std::memcpy(&eight, flag + word, sizeof eight);
            for (; eight != 0; eight &= eight - 1) {
                const std::int32_t i = word + std::countr_zero(eight) / 8;
                consider(values[i], first + i, coarse[i], key, floor, two);
            }
        }
    }
    return two;
}

FORESAY_INLINE BestTwo sample_list(const std::int32_t* ids, const float* x, std::int32_t n, const NoiseKey& key) {
    BestTwo two = BestTwo::none();
    float floor = -kInfinity;
    std::uint32_t purpose[kLanes] = {}, words[4][kLanes];
    for (std::int32_t first = 0; first < n; first += kLanes) {
        const std::int32_t count = n - first < kLanes ? n - first : kLanes;
        for (std::int32_t i = 0; i < count; ++i) purpose[i] = static_cast<std::uint32_t>(ids[first + i]) >> 4;
        philox_lanes(purpose, key, words);
        for (std::int32_t i = 0; i < count; ++i) {
            const std::uint32_t byte = static_cast<std::uint32_t>(ids[first + i]) & 15u;
            const std::uint32_t coarse = (words[byte >> 2][i] >> (8u * (byte & 3u))) & 255u;
            consider(x[first + i], ids[first + i], coarse, key, floor, two);
        }
    }
    return two;
}

FORESAY_INLINE BestTwo best_whole(const float* x, std::int32_t n, const float* lanes) {
    BestTwo two = BestTwo::none();
    const std::int32_t count = lane_count(n);
    for (std::int32_t lane = 0; lane < count; ++lane) {
        if (!(lanes[lane] > -kInfinity) || lanes[lane] < two.second) continue;
        const std::int32_t first = lane / kLanes * kChunk + lane % kLanes;
        const std::int32_t last = first + kChunk < n ? first + kChunk : n;
        for (std::int32_t i = first; i < last; i += kLanes) {
            if (is_candidate(x[i])) two.add(finite_logit(x[i]), i);
        }
    }
    return two;
}

}  // namespace

// One set of functions for a target attribute; the bodies above are inlined into each.
#define FORESAY_SAMPLING_KERNELS(NAME, TARGET)                                                              \
    namespace NAME {                                                                                        \
    TARGET void lanes(const float* x, std::int32_t n, float* out) { lane_maxima(x, n, out); }               \
    TARGET std::int32_t gather(const float* x, std::int32_t n, const float* l, float t, std::uint64_t* k) { \
        return collect(x, n, l, t, k);                                                                      \
    }                                                                                                       \
    TARGET void scale(float* x, std::int32_t n, float d) { divide(x, n, d); }                               \
    TARGET std::uint64_t weights(const float* x, std::int32_t n, float top, std::uint64_t* w) {             \
        return weigh(x, n, top, w);                                                                         \
    }                                                                                                       \
    TARGET BestTwo whole(const float* x, std::int32_t n, const float* l, float f, const NoiseKey& k) {      \
        return sample_whole(x, n, l, f, k);                                                                 \
    }                                                                                                       \
    TARGET BestTwo list(const std::int32_t* ids, const float* x, std::int32_t n, const NoiseKey& k) {       \
        return sample_list(ids, x, n, k);                                                                   \
    }                                                                                                       \
    TARGET BestTwo best(const float* x, std::int32_t n, const float* l) { return best_whole(x, n, l); }     \
    }

namespace {
FORESAY_SAMPLING_KERNELS(portable, )
#if defined(__x86_64__)
FORESAY_SAMPLING_KERNELS(avx2, __attribute__((target("avx2,fma,bmi,bmi2,lzcnt"))))
FORESAY_SAMPLING_KERNELS(avx512, __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,bmi,bmi2,lzcnt"))))
#endif

struct KernelTable {
    SamplingKernels versions[3];
    std::size_t count = 0;
    KernelTable() {
#if defined(__x86_64__)
        __builtin_cpu_init();
        if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("fma") &&
            __builtin_cpu_supports("bmi2") && cpu_has_lzcnt()) {
            using namespace avx512;
            versions[count++] = {"avx512", lanes, gather, scale, weights, whole, list, best};
        }
        if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2") &&
            cpu_has_lzcnt()) {
            using namespace avx2;
            versions[count++] = {"avx2", lanes, gather, scale, weights, whole, list, best};
        }
#endif
        using namespace portable;
        versions[count++] = {"portable", lanes, gather, scale, weights, whole, list, best};
    }
};

const KernelTable& kernel_table() {
    static const KernelTable table;
    return table;
}

}  // namespace

const SamplingKernels& sampling_kernels() { return kernel_table().versions[0]; }

std::span<const SamplingKernels> all_sampling_kernels() { return {kernel_table().versions, kernel_table().count}; }

}  // namespace foresay::kernels
