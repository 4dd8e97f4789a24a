#include "speculative/prediction.h"

#include <algorithm>

#include "speculative/drafters/ngram_drafter.h"

namespace foresay::speculative {
namespace {

constexpr std::size_t kBeforePrediction = 32;  // tokens of the prompt that are put before it
constexpr std::int32_t kNoToken = -1;          // ends a prediction: nothing follows it

}  // namespace

std::vector<std::int32_t> predicted_text(std::span<const std::int32_t> tokens, std::span<const std::int32_t> prediction,
                                         std::size_t room) {
    const auto before = tokens.last(std::min(kBeforePrediction, tokens.size()));
    std::vector<std::int32_t> text;
    text.reserve(before.size() + prediction.size() + 1 + tokens.size() + room);
    text.assign(before.begin(), before.end());
    text.insert(text.end(), prediction.begin(), prediction.end());
    text.push_back(kNoToken);
    text.insert(text.end(), tokens.begin(), tokens.end());
    return text;
}

void PredictionLookup::predict(std::span<const std::int32_t> tokens, std::span<const std::int32_t> prediction,
                               std::size_t room) {
    lookup_.reset();
    if (prediction.empty()) return;
    text_ = predicted_text(tokens, prediction, room);
    before_ = text_.size() - tokens.size();
    lookup_ = make_ngram_drafter(static_cast<std::int32_t>(text_.capacity()));
    lookup_->begin(text_);
}

void PredictionLookup::follow(std::span<const std::int32_t> sequence) {
    const std::size_t known = text_.size() - before_;
    if (sequence.size() > known) text_.insert(text_.end(), sequence.begin() + known, sequence.end());
}

Proposal PredictionLookup::look_up(std::span<const std::int32_t> sequence, std::span<const std::int32_t> draft) {
    if (lookup_ == nullptr) return {};
    follow(sequence);
    return lookup_->look_up(text_, draft);
}

void PredictionLookup::propose(const DraftTask& task, DraftedTokens& draft) {
    if (lookup_ == nullptr) return;
    follow(task.tokens);
    DraftTask all = task;
    all.tokens = text_;
    lookup_->propose(all, draft);
}

}  // namespace foresay::speculative
