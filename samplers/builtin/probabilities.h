// samplers/builtin/probabilities.h: probabilities of candidates, for stages that are written against the plugin SDK.
//
// Precision: weights are fixed-point integers, as everywhere, so their sum depends on no order; the rest is float64 in
//            the order of the candidates, which is that of their logits.
// Threads:   any; the lists belong to the thread and are valid until its next call.
#pragma once

#include <cmath>
#include <vector>

#include "kernels/math.h"
#include "kernels/sampling_steps.h"
#include "samplers/sdk/sampler.hpp"

namespace foresay::samplers {

struct Probabilities {
    std::vector<double> p;      // best first; they sum to 1
    std::vector<double> log_p;  // natural logarithms
};

inline const Probabilities& probabilities_of(const Mask& candidates) {
    static thread_local Probabilities all;
    static thread_local std::vector<std::uint64_t> weights;
    const std::size_t count = candidates.size();
    all.p.resize(count);
    all.log_p.resize(count);
    weights.resize(count);
    std::uint64_t sum = 0;
    for (std::size_t i = 0; i < count; ++i) {
        weights[i] = kernels::fixed_weight(candidates[i].logit, candidates[0].logit);
        sum += weights[i];
    }
    const double log_sum = kernels::log_of_fixed(sum);
    for (std::size_t i = 0; i < count; ++i) {
        all.p[i] = static_cast<double>(weights[i]) / static_cast<double>(sum);
        all.log_p[i] = static_cast<double>(candidates[i].logit) - candidates[0].logit - log_sum;
    }
    return all;
}

// x to the power of y with the host's own functions, whose bits are the same everywhere; 0 where x is 0.
inline float power(float x, float y) { return x > 0.0f ? kernels::math::exp(y * kernels::math::log(x)) : 0.0f; }

}  // namespace foresay::samplers
