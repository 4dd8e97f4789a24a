#include "kernels/routing.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace foresay::kernels {
namespace {

using std::int32_t;

std::vector<float> dequantize(const TensorView& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    if (!tensor.empty() && tensor.data != nullptr) dequantize_row(tensor, 0, values);
    return values;
}

void softmax(std::span<float> values) {
    const double peak = *std::max_element(values.begin(), values.end());
    double sum = 0.0;
    for (float& value : values) {
        value = static_cast<float>(std::exp(static_cast<double>(value) - peak));
        sum += static_cast<double>(value);
    }
    for (float& value : values) value = static_cast<float>(static_cast<double>(value) / sum);
}

constexpr float kTaken = -std::numeric_limits<float>::infinity();

// The best of `values` that is not taken; ties go to the lowest index. Among NaN alone, the first.
std::size_t best_of(std::span<const float> values) {
    std::size_t best = values.size();
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (values[i] == kTaken) continue;
        if (best == values.size() || values[i] > values[best]) best = i;
    }
    return best < values.size() ? best : 0;
}

// Takes the experts outside the best groups out of the choice. A group counts as the sum of its two best experts.
void keep_best_groups(std::span<float> choice, std::span<float> scratch, int32_t groups, int32_t used) {
    const std::size_t size = choice.size() / static_cast<std::size_t>(groups);
    const std::span<float> sums = scratch.first(static_cast<std::size_t>(groups));
    const std::span<float> kept = scratch.subspan(sums.size(), sums.size());
    for (std::size_t g = 0; g < sums.size(); ++g) {
        const std::span<float> group = choice.subspan(g * size, size);
        const std::size_t first = best_of(group);
        float second = kTaken;
        for (std::size_t i = 0; i < size; ++i) {
            if (i != first) second = std::max(second, group[i]);
        }
        sums[g] = size > 1 ? group[first] + second : group[first];
        kept[g] = 0.0f;
    }
    for (int32_t i = 0; i < used; ++i) {
        const std::size_t best = best_of(sums);
        sums[best] = kTaken;
        kept[best] = 1.0f;
    }
    for (std::size_t g = 0; g < sums.size(); ++g) {
        if (kept[g] == 0.0f) std::ranges::fill(choice.subspan(g * size, size), kTaken);
    }
}

}  // namespace

RoutingRules::RoutingRules(const RouterSpec& spec, const ModelShape& shape)
    : experts(shape.experts),
      used(shape.experts_used),
      gating(spec.gating),
      renormalize(spec.renormalize),
      scale(spec.scale),
      groups(spec.groups),
      groups_used(spec.groups_used),
      bias(dequantize(spec.bias)),
      choice_bias(dequantize(spec.choice_bias)),
      factor(dequantize(spec.factor)) {}

void RoutingRules::route(std::span<float> scores, std::span<float> scratch, std::span<ExpertChoice> chosen) const {
    const std::size_t count = scores.size();
    for (std::size_t e = 0; e < bias.size(); ++e) scores[e] += bias[e];
    if (gating == Gating::softmax) softmax(scores);
    if (gating == Gating::sigmoid) {
        for (float& score : scores) score = static_cast<float>(1.0 / (1.0 + std::exp(-static_cast<double>(score))));
    }
    const std::span<float> choice = scratch.first(count);
    std::ranges::copy(scores, choice.begin());
    for (std::size_t e = 0; e < choice_bias.size(); ++e) choice[e] += choice_bias[e];
    if (groups_used < groups) keep_best_groups(choice, scratch.subspan(count), groups, groups_used);
    for (ExpertChoice& one : chosen) {
        const std::size_t best = best_of(choice);
        one.expert = static_cast<int32_t>(best);
        one.weight = scores[best];
        choice[best] = kTaken;
    }
    if (gating == Gating::softmax_chosen) {
        const std::span<float> weights = scratch.subspan(count, chosen.size());
        for (std::size_t i = 0; i < chosen.size(); ++i) weights[i] = chosen[i].weight;
        softmax(weights);
        for (std::size_t i = 0; i < chosen.size(); ++i) chosen[i].weight = weights[i];
    }
    std::ranges::sort(chosen, {}, &ExpertChoice::expert);
    if (renormalize) {
        double sum = 0.0;
        for (const ExpertChoice& one : chosen) sum += static_cast<double>(one.weight);
        for (ExpertChoice& one : chosen) {
            one.weight = static_cast<float>(static_cast<double>(one.weight) / std::max(sum, 1e-20));
        }
    }
    for (ExpertChoice& one : chosen) {
        one.weight *= scale;
        if (!factor.empty()) one.weight *= factor[static_cast<std::size_t>(one.expert)];
    }
}

double distinct_experts(std::int32_t experts, std::int32_t used, std::int64_t rows) {
    return experts * (1.0 - std::pow(1.0 - static_cast<double>(used) / experts, static_cast<double>(rows)));
}

}  // namespace foresay::kernels
