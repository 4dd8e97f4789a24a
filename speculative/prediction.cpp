#include "speculative/prediction.h"

#include <algorithm>
#include <array>

#include "speculative/drafters/drafters.h"

namespace foresay::speculative {
namespace {

constexpr std::size_t kBeforePrediction = 32;  // tokens of the prompt that are put before it
constexpr std::int32_t kNoToken = -1;          // ends a prediction: nothing follows it

// The first kind of lookup that there is.
std::unique_ptr<Drafter> make_lookup(std::size_t capacity) {
    for (const DrafterKind& kind : drafter_kinds()) {
        if (kind.needs_draft_model) continue;
        return kind.make({.context_length = static_cast<std::int32_t>(capacity),
                          .draft = {},
                          .draft_context = {},
                          .never_proposed = {}});
    }
    return nullptr;
}

// The prediction and, after it, the text `tokens`, with room for `room` tokens more.
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

}  // namespace

void PredictionLookup::predict(std::span<const std::int32_t> tokens, std::span<const std::int32_t> prediction,
                               std::size_t room) {
    lookup_.reset();
    if (prediction.empty()) return;
    text_ = predicted_text(tokens, prediction, room);
    before_ = text_.size() - tokens.size();
    lookup_ = make_lookup(text_.capacity());
    if (lookup_ == nullptr) return;
    place_ = 0;
    lookup_->begin(text_);
}

void PredictionLookup::follow(std::span<const std::int32_t> sequence) {
    const std::size_t known = text_.size() - before_;
    if (sequence.size() > known) text_.insert(text_.end(), sequence.begin() + known, sequence.end());
}

// Whether the prediction has the proposed token after the tokens that it was found by.
bool PredictionLookup::predicts(std::span<const std::int32_t> draft, const Proposal& found) {
    constexpr std::int32_t kShown = 3;  // so many of them are compared
    std::array<std::int32_t, kShown + 1> wanted{};
    const auto length = static_cast<std::size_t>(std::min(found.length, kShown));
    for (std::size_t i = 0; i < length; ++i) {
        const std::size_t back = length - i;
        wanted[i] = back <= draft.size() ? draft[draft.size() - back] : text_[text_.size() + draft.size() - back];
    }
    wanted[length] = found.token;
    const auto shown = std::span<const std::int32_t>(wanted).first(length + 1);
    const auto predicted = std::span<const std::int32_t>(text_).first(before_);
    const auto is_at = [&](std::size_t place) {
        return place >= length && place < before_ &&
               std::ranges::equal(predicted.subspan(place - length, length + 1), shown);
    };
    if (is_at(place_ + 1)) {
        ++place_;
        return true;
    }
    const auto match = std::search(predicted.begin(), predicted.end(), shown.begin(), shown.end());
    if (match == predicted.end()) return false;
    place_ = static_cast<std::size_t>(match - predicted.begin()) + length;
    return true;
}

Proposal PredictionLookup::look_up(std::span<const std::int32_t> sequence, std::span<const std::int32_t> draft) {
    if (lookup_ == nullptr) return {};
    follow(sequence);
    const Proposal found = lookup_->look_up(text_, draft);
    return found.token >= 0 && predicts(draft, found) ? found : Proposal{};
}

void PredictionLookup::propose(const DraftTask& task, DraftedTokens& draft) {
    while (static_cast<std::int32_t>(draft.tokens.size()) < task.max_tokens) {
        const Proposal found = look_up(task.tokens, draft.tokens);
        if (found.token < 0) return;
        draft.tokens.push_back(found.token);
        draft.margins.push_back(static_cast<float>(found.length));
        if (std::ranges::find(task.end_tokens, found.token) != task.end_tokens.end()) return;
    }
}

}  // namespace foresay::speculative
