#include "speculative/logprobs.h"

#include <algorithm>
#include <cmath>

namespace foresay::speculative {

Logprobs::Logprobs(std::int32_t vocab, std::int32_t most)
    : most_(static_cast<std::size_t>(std::clamp(most, 0, vocab))), row_(static_cast<std::size_t>(vocab)), ids_(most_) {
    entries_.reserve(most_ + 1);
}

void Logprobs::read(std::span<const float> logits) {
    std::copy_n(logits.begin(), std::min(logits.size(), row_.size()), row_.begin());
}

std::span<const TokenLogprob> Logprobs::of(std::int32_t token) {
    const double best = *std::ranges::max_element(row_);
    double sum = 0.0;
    for (const float logit : row_) sum += std::exp(static_cast<double>(logit) - best);
    const double normaliser = best + std::log(sum);
    const auto entry = [&](std::int32_t id) {
        const double logit = row_[static_cast<std::size_t>(id)];
        return TokenLogprob{id, static_cast<float>(logit - normaliser)};
    };
    // The likeliest so far, best first: rows are long and lists short.
    ids_.clear();
    for (std::size_t id = 0; id < row_.size() && most_ > 0; ++id) {
        if (ids_.size() == most_ && row_[id] <= row_[static_cast<std::size_t>(ids_.back())]) continue;
        if (ids_.size() == most_) ids_.pop_back();
        const auto place = std::ranges::find_if(
            ids_, [&](std::int32_t other) { return row_[id] > row_[static_cast<std::size_t>(other)]; });
        ids_.insert(place, static_cast<std::int32_t>(id));
    }
    entries_.clear();
    entries_.push_back(entry(token));
    for (const std::int32_t id : ids_) entries_.push_back(entry(id));
    return entries_;
}

}  // namespace foresay::speculative
