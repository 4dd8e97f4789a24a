// kernels/sampling_cutoffs.h: the arithmetic of the sampling steps that look at probabilities, at the entropy or at the
// spread of the logits, written once for host and device. The loops around it differ, as those of sampling_steps.h do.
//
// Identity: as sampling_steps.h, with single IEEE operations in float64 as well, the square root among them.
// Sums:     weights, and what is made of them, are integers, so any order of adding gives the same bits. A spread is a
//           sum of float64 in one order, which places decide: candidates 16i..16i+15 one after the other, then pairs of
//           neighbours, pairs of pairs and so on (MomentsTree). The place of a candidate is its id while the candidates
//           are a row, else its rank.
// Threads:  pure functions.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/math.h"
#include "kernels/sampling_plan.h"
#include "kernels/sampling_steps.h"

namespace foresay::kernels {

FORESAY_HOST_DEVICE inline double square_root(double x) {
#if defined(__CUDA_ARCH__)
    return __dsqrt_rn(x);
#else
    return std::sqrt(x);
#endif
}

// -------------------------------------------------------------------------------------------------- probabilities

// What all candidates weigh together, and their distances to the best one, each times its weight. Both are sums of
// fixed-point integers (fixed_weight(), weighed_distance()).
struct WeightSums {
    std::uint64_t weight = 0;
    std::uint64_t distance = 0;
};

// A candidate's part of WeightSums::distance. At most 2^40 / e, so that 2^24 of them fit into 64 bits.
FORESAY_HOST_DEVICE inline std::uint64_t weighed_distance(std::uint64_t weight, float logit, float best) {
    const double distance = static_cast<double>(best) - static_cast<double>(logit);
    return static_cast<std::uint64_t>(static_cast<std::int64_t>(static_cast<double>(weight) * distance));
}

FORESAY_HOST_DEVICE inline double expected_distance(const WeightSums& sums) {
    return static_cast<double>(sums.distance) / static_cast<double>(sums.weight);
}

// The entropy in nats: the expected surprise, and a candidate's surprise is its distance + log(sum of weights).
FORESAY_HOST_DEVICE inline double entropy(const WeightSums& sums) {
    return static_cast<double>(log_of_fixed(sums.weight)) + expected_distance(sums);
}

// The least probability that top_a, epsilon_cutoff and eta_cutoff keep. `best`: the weight of the best candidate.
template <class Step>
FORESAY_HOST_DEVICE inline double least_probability(const Step& step, std::uint64_t best, const WeightSums& sums) {
    if (step.kind == SamplingStepKind::epsilon_cutoff) return step.limit;
    if (step.kind == SamplingStepKind::top_a) {
        const double p = static_cast<double>(best) / static_cast<double>(sums.weight);
        return step.limit * p * p;
    }
    const double unsure = static_cast<double>(math::exp(static_cast<float>(-entropy(sums))));
    const double other = square_root(step.limit) * unsure;
    return other < step.limit ? other : step.limit;
}
FORESAY_HOST_DEVICE inline bool is_probable(std::uint64_t weight, std::uint64_t sum, double least) {
    return static_cast<double>(weight) / static_cast<double>(sum) >= least;
}

// Keys whose ascending order is that of typical: the surprise nearest to the expected one first, then the best rank.
FORESAY_HOST_DEVICE inline std::uint64_t typical_key(float logit, float best, double expected, std::int32_t rank) {
    const double distance = static_cast<double>(best) - static_cast<double>(logit);
    const double away = distance < expected ? expected - distance : distance - expected;
    return (std::uint64_t{rising_bits(static_cast<float>(away))} << 32) | static_cast<std::uint32_t>(rank);
}
// The rank in such a key.
FORESAY_HOST_DEVICE inline std::int32_t rank_of(std::uint64_t key) { return key_id(key); }
// The weight that the candidates kept by typical must reach together.
FORESAY_HOST_DEVICE inline std::uint64_t typical_weight(double limit, std::uint64_t sum) {
    return static_cast<std::uint64_t>(limit * static_cast<double>(sum));
}

// How much the sorted weights bend at the middle one of three.
FORESAY_HOST_DEVICE inline std::uint64_t bend(std::uint64_t above, std::uint64_t weight, std::uint64_t below) {
    const std::uint64_t outer = above + below, inner = 2 * weight;
    return outer > inner ? outer - inner : inner - outer;
}
// Whether tfs goes on where the bends up to here are `reached` of `all`.
FORESAY_HOST_DEVICE inline bool tfs_goes_on(double limit, std::uint64_t reached, std::uint64_t all) {
    return static_cast<double>(reached) <= limit * static_cast<double>(all);
}

// ---------------------------------------------------------------------------------------------- changes of logits

// The temperature of dynatemp among `count` candidates.
FORESAY_HOST_DEVICE inline float dynamic_temperature(const DynamicTemperature& range, std::int32_t count,
                                                     const WeightSums& sums) {
    if (count < 2) return 1.0f;
    const double share = entropy(sums) / static_cast<double>(math::log(static_cast<float>(count)));
    const float doubt = static_cast<float>(share > 0.0 ? share : 0.0);
    const float way = doubt > 0.0f ? math::exp(range.exponent * math::log(doubt)) : 0.0f;
    return static_cast<float>(range.min + (range.max - range.min) * static_cast<double>(way));
}

FORESAY_HOST_DEVICE inline float smoothed(const Smoothing& curve, float logit, float best) {
    // Beyond kFarthest nothing is ever sampled, and nothing may become infinite, or NaN from infinities.
    constexpr float kFarthest = 1e4f;
    const float d = best - logit;
    const float square = curve.square * d * d, cube = curve.cube * d * d * d;
    const float drop = curve.factor * (square + cube);
    return best - (drop < kFarthest ? drop : kFarthest);
}

// --------------------------------------------------------------------------------------------------------- spread

// Of some candidates. Those of no candidate are neutral in merged(), bit for bit.
struct Moments {
    std::int32_t count;
    float best;
    double mean;
    double squares;  // sum of squared distances to the mean

    FORESAY_HOST_DEVICE static Moments none() { return {0, -positive_infinity(), 0.0, 0.0}; }
};

inline constexpr std::int32_t kMomentsGroup = 16;

// Of at most kMomentsGroup values; those that are no candidates are left out.
FORESAY_HOST_DEVICE inline Moments moments_of(const float* x, std::int32_t n) {
    Moments m = Moments::none();
    double sum = 0.0;
    for (std::int32_t i = 0; i < n; ++i) {
        if (!is_candidate(x[i])) continue;
        const float value = finite_logit(x[i]);
        sum += static_cast<double>(value);
        m.best = value > m.best ? value : m.best;
        ++m.count;
    }
    if (m.count == 0) return m;
    m.mean = sum / static_cast<double>(m.count);
    for (std::int32_t i = 0; i < n; ++i) {
        if (!is_candidate(x[i])) continue;
        const double away = static_cast<double>(finite_logit(x[i])) - m.mean;
        m.squares += away * away;
    }
    return m;
}

// Of the candidates of both; `a` comes first in the order.
FORESAY_HOST_DEVICE inline Moments merged(const Moments& a, const Moments& b) {
    if (b.count == 0) return a;
    if (a.count == 0) return b;
    Moments m;
    m.count = a.count + b.count;
    m.best = a.best < b.best ? b.best : a.best;
    const double away = b.mean - a.mean;
    const double share = static_cast<double>(b.count) / static_cast<double>(m.count);
    m.mean = a.mean + away * share;
    m.squares = (a.squares + b.squares) + away * away * (static_cast<double>(a.count) * share);
    return m;
}

// Merges groups that are added in order, two neighbours at a time. Trees over 2^k groups may be added in place of
// groups, if all but the last are full.
class MomentsTree {
public:
    FORESAY_HOST_DEVICE void add(Moments m) {
        int at = 0;
        for (std::uint32_t before = added_++; (before & 1u) != 0; before >>= 1) m = merged(level_[at++], m);
        level_[at] = m;
    }
    FORESAY_HOST_DEVICE Moments all() const {
        Moments m = Moments::none();
        for (int at = 0; at < kLevels; ++at) {
            if ((added_ >> at & 1u) != 0) m = merged(level_[at], m);
        }
        return m;
    }

private:
    static constexpr int kLevels = 28;  // 2^28 groups
    std::uint32_t added_ = 0;
    Moments level_[kLevels];
};

// The lowest value that top_n_sigma keeps.
FORESAY_HOST_DEVICE inline double least_within(double limit, const Moments& all) {
    if (all.count == 0) return 0.0;
    return static_cast<double>(all.best) - limit * square_root(all.squares / static_cast<double>(all.count));
}
FORESAY_HOST_DEVICE inline bool is_within(float logit, double least) { return static_cast<double>(logit) >= least; }

}  // namespace foresay::kernels
