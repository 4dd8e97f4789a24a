// kernels/sampling_steps.h: the arithmetic of sampling that host and device must agree on bit for bit, written once.
//
// The loops around it differ: kernels/sampling_simd.cpp uses vectors, kernels/cuda thread blocks. Everything that
// decides which token wins is here.
//
// Identity: single IEEE operations, integer arithmetic, and the functions of kernels/math.h. Needs -ffp-contract=off on
//           the host and --fmad=false on the device.
// Sums:     probabilities are summed as 2^-40 fixed-point integers, so any order of adding gives the same bits.
// Threads:  pure functions.
#pragma once

#include <cfloat>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/math.h"
#include "kernels/noise.h"
#include "kernels/sampled_token.h"
#include "kernels/sampling_plan.h"

namespace foresay::kernels {

// ----------------------------------------------------------------------------------------------------------- order

FORESAY_HOST_DEVICE inline float positive_infinity() { return math::of_bits(0x7f800000u); }

// False for -inf and NaN.
FORESAY_HOST_DEVICE inline bool is_candidate(float logit) { return logit > -positive_infinity(); }

// The logit of a candidate: +inf counts as the largest float.
FORESAY_HOST_DEVICE inline float finite_logit(float logit) { return logit < FLT_MAX ? logit : FLT_MAX; }

// Maps floats to unsigned integers of the same order; value_of_rising() is the inverse.
FORESAY_HOST_DEVICE inline std::uint32_t rising_bits(float value) {
    const std::uint32_t bits = math::bits_of(value);
    return (bits & 0x80000000u) ? ~bits : bits | 0x80000000u;
}
FORESAY_HOST_DEVICE inline float value_of_rising(std::uint32_t rising) {
    return math::of_bits((rising & 0x80000000u) ? rising & 0x7fffffffu : ~rising);
}

// Keys whose ascending order is: highest logit first, then lowest id. Logits must not be NaN.
FORESAY_HOST_DEVICE inline std::uint64_t order_key(float logit, std::int32_t id) {
    const std::uint32_t rising = rising_bits(logit + 0.0f);  // -0 becomes +0, so that they tie
    return (std::uint64_t{~rising} << 32) | static_cast<std::uint32_t>(id);
}
FORESAY_HOST_DEVICE inline std::int32_t key_id(std::uint64_t key) {
    return static_cast<std::int32_t>(key & 0xffffffffu);
}
FORESAY_HOST_DEVICE inline float key_logit(std::uint64_t key) {
    return value_of_rising(~static_cast<std::uint32_t>(key >> 32));
}

// The lowest value whose rising_bits() begin with the upper 16 bits of `prefix`, whose other bits are 0. At least
// -FLT_MAX: only -inf and NaN are below it.
FORESAY_HOST_DEVICE inline float prefix_bound(std::uint32_t prefix) {
    return prefix <= rising_bits(-FLT_MAX) ? -FLT_MAX : value_of_rising(prefix);
}

// A byte of the k-th largest value, and the value's rank among those that share it.
struct RankedByte {
    std::int32_t byte;
    std::int32_t rank;
};
// `counts[b]`: how many values have byte b. k is at least 1 and at most their sum.
FORESAY_HOST_DEVICE inline RankedByte kth_largest_byte(const std::int32_t* counts, std::int32_t k) {
    std::int32_t byte = 255;
    for (; byte > 0 && counts[byte] < k; --byte) k -= counts[byte];
    return {byte, k};
}

// The two best scores and the id of the best one. Ties go to the lowest id.
struct BestTwo {
    float best;
    float second;
    std::int32_t id;  // -1: none yet

    FORESAY_HOST_DEVICE static BestTwo none() { return {-positive_infinity(), -positive_infinity(), -1}; }
    FORESAY_HOST_DEVICE void add(float score, std::int32_t candidate) {
        if (score > best || (score == best && candidate < id)) {
            second = best;
            best = score;
            id = candidate;
        } else if (score > second) {
            second = score;
        }
    }
    FORESAY_HOST_DEVICE void merge(float other_best, float other_second, std::int32_t other_id) {
        if (other_id < 0) return;
        add(other_best, other_id);
        if (other_second > second) second = other_second;
    }
    // The margin of a SampledToken.
    FORESAY_HOST_DEVICE float margin() const {
        return id < 0 ? 0.0f : is_candidate(second) ? best - second : positive_infinity();
    }
};

// ----------------------------------------------------------------------------------------------- elementwise steps

// The entry of `token` in a list that ascends by token, or nullptr.
template <typename Entry>
FORESAY_HOST_DEVICE inline const Entry* find_entry(const Entry* entries, std::int32_t count, std::int32_t token) {
    std::int32_t low = 0, high = count;
    while (low < high) {
        const std::int32_t middle = (low + high) / 2;
        if (entries[middle].token < token) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < count && entries[low].token == token ? entries + low : nullptr;
}

FORESAY_HOST_DEVICE inline float penalised(float logit, const Penalties& penalties, std::int32_t count) {
    logit = logit > 0.0f ? logit / penalties.repeat : logit * penalties.repeat;
    logit -= static_cast<float>(count) * penalties.frequency;
    return logit - penalties.presence;
}

FORESAY_HOST_DEVICE inline bool is_allowed(const std::uint32_t* bits, std::int32_t words, std::int32_t id) {
    return id / 32 < words && (bits[id / 32] >> (id % 32) & 1u) != 0;
}

// --------------------------------------------------------------------------------------------------- ranking steps

inline constexpr float kFixedOne = 1099511627776.0f;  // 2^40

// exp(logit - best), the weight of a candidate in fixed point. At most 2^40, so that 2^24 of them fit into 64 bits.
FORESAY_HOST_DEVICE inline std::uint64_t fixed_weight(float logit, float best) {
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(math::exp(logit - best) * kFixedOne));
}

// log of a sum of weights.
FORESAY_HOST_DEVICE inline float log_of_fixed(std::uint64_t sum) {
    return math::log(static_cast<float>(static_cast<double>(sum) * (1.0 / 1099511627776.0)));
}

// How many candidates top_k keeps.
FORESAY_HOST_DEVICE inline std::int32_t top_k_count(std::uint32_t top_k) {
    constexpr std::uint32_t kMost = 1u << 30;
    return top_k == 0 ? 1 : static_cast<std::int32_t>(top_k < kMost ? top_k : kMost);
}

// The weight that the candidates kept by top_p must reach together; `sum` is the weight of all.
FORESAY_HOST_DEVICE inline std::uint64_t top_p_weight(float top_p, std::uint64_t sum) {
    return static_cast<std::uint64_t>(static_cast<double>(top_p) * static_cast<double>(sum));
}

// The lowest logit that min_p keeps.
FORESAY_HOST_DEVICE inline float min_p_logit(float min_p_log, float best) { return best + min_p_log; }

// Whether xtc acts at this position. Never above a threshold of 0.5, which two candidates cannot both reach.
FORESAY_HOST_DEVICE inline bool xtc_acts(const Xtc& xtc, const NoiseKey& key) {
    return xtc.threshold <= 0.5f && stage_uniform(key, xtc.stream, 0) < xtc.probability;
}
// Whether a candidate's weight reaches the threshold.
FORESAY_HOST_DEVICE inline bool xtc_is_likely(const Xtc& xtc, std::uint64_t weight, std::uint64_t sum) {
    return static_cast<double>(weight) >= static_cast<double>(xtc.threshold) * static_cast<double>(sum);
}

}  // namespace foresay::kernels
