// kernels/routing.h: the choice of a row's experts from the scores of a router, the same for every backend on the host.
//
// Law 1:    a function of one row's scores. Ties go to the lowest id.
// Precision: exponentials in double, rounded to float32; sums in double, by ascending id.
// Threads:  route() touches no memory but its arguments.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace foresay::kernels {

struct ExpertChoice {
    std::int32_t expert = 0;
    float weight = 0.0f;
};

// What a RouterSpec says about scores, with its vectors in float32.
struct RoutingRules {
    std::int32_t experts = 0, used = 0;
    Gating gating = Gating::softmax;
    bool renormalize = false;
    float scale = 1.0f;
    std::int32_t groups = 1, groups_used = 1;
    std::vector<float> bias, choice_bias, factor;  // empty, or one per expert

    RoutingRules(const RouterSpec& spec, const ModelShape& shape);

    // Values that route() needs as scratch.
    std::size_t scratch() const { return static_cast<std::size_t>(2 * experts + 2 * groups); }
    // Chooses `used` experts into `chosen`, by ascending id. Overwrites `scores`, which come without the bias.
    void route(std::span<float> scores, std::span<float> scratch, std::span<ExpertChoice> chosen) const;
};

// How many of `experts` some row of `rows` has chosen, on average, if each row chooses `used` of them independently and
// evenly: what a forward reads.
double distinct_experts(std::int32_t experts, std::int32_t used, std::int64_t rows);

}  // namespace foresay::kernels
