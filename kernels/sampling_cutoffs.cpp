// The host's loops around the arithmetic of kernels/sampling_cutoffs.h.

#include "kernels/sampling_cutoffs.h"

#include <algorithm>

#include "kernels/sampling.h"
#include "kernels/sampling_simd.h"

namespace foresay::kernels {
namespace {

Moments moments_of_all(const float* x, std::int32_t n) {
    MomentsTree tree;
    for (std::int32_t i = 0; i < n; i += kMomentsGroup) tree.add(moments_of(x + i, std::min(kMomentsGroup, n - i)));
    return tree.all();
}

WeightSums sums_of(const float* logits, const std::uint64_t* weights, std::int32_t count) {
    WeightSums sums;
    for (std::int32_t i = 0; i < count; ++i) {
        sums.weight += weights[i];
        sums.distance += weighed_distance(weights[i], logits[i], logits[0]);
    }
    return sums;
}

// How many of the sorted candidates keep(i) holds for, from the best on.
template <class Keep>
std::int32_t leading(std::int32_t count, const Keep& keep) {
    std::int32_t kept = 0;
    while (kept < count && keep(kept)) ++kept;
    return kept;
}

}  // namespace

void SamplingScratch::apply_sigma_to_row(const SamplingStep& step) {
    const double least = least_within(step.limit, moments_of_all(row_.data(), static_cast<std::int32_t>(row_.size())));
    for (float& logit : row_) logit = is_within(logit, least) ? logit : -positive_infinity();
}

void SamplingScratch::apply_cutoff(const SamplingStep& step) {
    switch (step.kind) {
        case SamplingStepKind::top_n_sigma: {
            const double least = least_within(step.limit, moments_of_all(logits_.data(), count_));
            count_ = std::max(1, leading(count_, [&](std::int32_t i) { return is_within(logits_[i], least); }));
            break;
        }
        case SamplingStepKind::tfs:
            count_ = tail_free(step.limit);
            break;
        case SamplingStepKind::typical:
            keep_typical(step);
            break;
        case SamplingStepKind::dynatemp:
        case SamplingStepKind::smoothing:
            change_logits(step);
            break;
        default: {
            weigh();
            const WeightSums sums = sums_of(logits_.data(), weights_.data(), count_);
            const double least = least_probability(step, weights_[0], sums);
            count_ = std::max(
                1, leading(count_, [&](std::int32_t i) { return is_probable(weights_[i], sums.weight, least); }));
            break;
        }
    }
}

std::int32_t SamplingScratch::tail_free(double limit) {
    if (count_ < 3) return count_;
    weigh();
    const auto bend_at = [&](std::int32_t i) { return bend(weights_[i], weights_[i + 1], weights_[i + 2]); };
    std::uint64_t all = 0, reached = 0;
    for (std::int32_t i = 0; i + 2 < count_; ++i) all += bend_at(i);
    if (all == 0) return count_;  // they fall evenly, or not at all
    return 1 + leading(count_ - 2, [&](std::int32_t i) { return tfs_goes_on(limit, reached += bend_at(i), all); });
}

void SamplingScratch::keep_typical(const SamplingStep& step) {
    weigh();
    const WeightSums sums = sums_of(logits_.data(), weights_.data(), count_);
    const double expected = expected_distance(sums);
    for (std::int32_t i = 0; i < count_; ++i) keys_[i] = typical_key(logits_[i], logits_[0], expected, i);
    std::sort(keys_.data(), keys_.data() + count_);
    const std::uint64_t enough = typical_weight(step.limit, sums.weight);
    std::int32_t kept = 0;
    std::uint64_t reached = 0;
    do {
        const std::int32_t rank = rank_of(keys_[kept]);
        keys_[kept++] = static_cast<std::uint64_t>(rank);
        reached += weights_[rank];
    } while (kept < count_ && reached < enough);
    // They stay in the order of their logits, so each moves up or stays.
    std::sort(keys_.data(), keys_.data() + kept);
    for (std::int32_t i = 0; i < kept; ++i) {
        ids_[i] = ids_[keys_[i]];
        logits_[i] = logits_[keys_[i]];
    }
    count_ = kept;
}

void SamplingScratch::change_logits(const SamplingStep& step) {
    if (step.kind == SamplingStepKind::smoothing) {
        const float best = logits_[0];
        for (std::int32_t i = 0; i < count_; ++i) logits_[i] = smoothed(step.smoothing, logits_[i], best);
    } else {
        weigh();
        const WeightSums sums = sums_of(logits_.data(), weights_.data(), count_);
        sampling_kernels().divide(logits_.data(), count_, dynamic_temperature(step.dynatemp, count_, sums));
    }
    // Logits that were apart may be equal now, and then the lowest id is first.
    drop_dead();
    sorted_ = false;
}

}  // namespace foresay::kernels
