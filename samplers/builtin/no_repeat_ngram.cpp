// no_repeat_ngram: no sequence of `size` tokens occurs twice among the last `window` tokens, the prompt included.
// Cost:   linear in the window for each token.
// Source: R. Paulus et al., "A Deep Reinforced Model for Abstractive Summarization", 2017.

#include <algorithm>
#include <limits>

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/recent_text.h"

namespace foresay::samplers {
namespace {

class NoRepeatNgram : public Stage {
public:
    NoRepeatNgram(std::size_t size, std::size_t window) : size_(size), window_(window) {}
    StageKind kind() const override { return StageKind::step; }
    bool idle() const override { return size_ == 0 || window_ < size_; }
    bool whole_vocabulary() const override { return true; }
    std::unique_ptr<StageState> make_state() const override { return std::make_unique<RecentText>(window_); }

    kernels::SamplingStep step(const StageState* state, std::vector<kernels::TokenCount>&) const override {
        const auto& recent = static_cast<const RecentText&>(*state);
        const std::span<const std::int32_t> text = recent.tokens();
        std::vector<kernels::TokenValue>& values = recent.rows().next();
        const std::size_t before = size_ - 1;  // tokens of a sequence before its last one
        if (text.size() < size_) return BiasRows::step(values);
        const auto last = text.last(before);
        for (std::size_t at = 0; at + before < text.size(); ++at) {
            if (!std::ranges::equal(text.subspan(at, before), last)) continue;
            values.push_back({text[at + before], -std::numeric_limits<float>::infinity()});
        }
        BiasRows::keep_lowest(values);
        return BiasRows::step(values);
    }

private:
    std::size_t size_, window_;
};

}  // namespace

std::shared_ptr<const StageFactory> no_repeat_ngram_factory() {
    StageDescription description{
        "no_repeat_ngram",
        "Keeps sequences of tokens from occurring twice.",
        {.memory = StageMemory::history, .masks_only = true, .whole_vocabulary = true},
        {{"size", ParameterType::integer, std::int64_t{0}, 0.0, 64.0, {}, "Tokens of a sequence; 0 is off."},
         {"window",
          ParameterType::integer,
          std::int64_t{2048},
          0.0,
          1048576.0,
          {},
          "How many of the last tokens count, the prompt included."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const auto number = [&](std::size_t i) {
            return static_cast<std::size_t>(std::get<std::int64_t>(parameters[i]));
        };
        return std::unique_ptr<Stage>(std::make_unique<NoRepeatNgram>(number(0), number(1)));
    });
}

}  // namespace foresay::samplers
