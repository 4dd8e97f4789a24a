// samplers/builtin/recent_text.h: a state that remembers the last tokens of a text, and how many are the answer's.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "samplers/builtin/bias_rows.h"
#include "samplers/stage.h"

namespace foresay::samplers {

class RecentText : public StageState {
public:
    // At most `most` tokens, and half as many at least, once the text has them.
    explicit RecentText(std::size_t most) : most_(most) {}

    std::string_view begin(std::span<const std::int32_t> history, std::size_t answer) override {
        answered_ = history.size() - answer;
        const auto kept = history.last(std::min(history.size(), most_));
        tokens_.assign(kept.begin(), kept.end());
        return {};
    }
    std::string_view copy(const StageState& other) override {
        const auto& from = static_cast<const RecentText&>(other);
        tokens_.assign(from.tokens_.begin(), from.tokens_.end());
        answered_ = from.answered_;
        return {};
    }
    std::string_view accept(const AcceptedToken& token) override {
        ++answered_;
        // Moves rarely: the list may grow to twice its length first.
        if (most_ == 0) return {};
        if (tokens_.size() >= 2 * most_)
            tokens_.erase(tokens_.begin(), tokens_.end() - static_cast<std::ptrdiff_t>(most_));
        tokens_.push_back(token.id);
        return {};
    }
    // The last `most` tokens, or all that there are.
    std::span<const std::int32_t> tokens() const { return std::span(tokens_).last(std::min(tokens_.size(), most_)); }
    std::size_t answered() const { return answered_; }
    const BiasRows& rows() const { return rows_; }

private:
    std::size_t most_;
    std::vector<std::int32_t> tokens_;
    std::size_t answered_ = 0;
    BiasRows rows_;
};

}  // namespace foresay::samplers
