// dry ("don't repeat yourself"): lowers the tokens that would lengthen a repetition. Where the text ends with n tokens
// that occurred before, n >= allowed_length, the token that followed there loses
//     multiplier * base^(n - allowed_length)
// for the longest such n. Repetitions do not reach across a token whose text has one of `breakers`.
// Cost:   linear in the window for each token.
// Source: P. E. Weidmann, text-generation-webui, 2024.

#include <algorithm>
#include <string>

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/recent_text.h"

namespace foresay::samplers {
namespace {

constexpr std::size_t kLongest = 50;  // repetitions are not counted beyond; the penalty is huge by then

class Dry : public Stage {
public:
    Dry(double multiplier, double base, std::size_t allowed, std::size_t window, std::vector<bool> breaks)
        : multiplier_(multiplier), base_(base), allowed_(allowed), window_(window), breaks_(std::move(breaks)) {}
    StageKind kind() const override { return StageKind::step; }
    bool idle() const override { return multiplier_ == 0.0 || window_ == 0; }
    bool whole_vocabulary() const override { return true; }
    std::unique_ptr<StageState> make_state() const override { return std::make_unique<RecentText>(window_); }

    kernels::SamplingStep step(const StageState* state, std::vector<kernels::TokenCount>&) const override {
        const auto& recent = static_cast<const RecentText&>(*state);
        const std::span<const std::int32_t> text = recent.tokens();
        std::vector<kernels::TokenValue>& values = recent.rows().next();
        // How far back from the end a repetition may reach.
        std::size_t reach = 0;
        while (reach < std::min(text.size(), kLongest) && !breaks(text[text.size() - 1 - reach])) ++reach;
        for (std::size_t end = 1; end < text.size() && reach >= allowed_ && reach > 0; ++end) {
            // Of the text before `end`, how many of the last tokens are those that the whole text ends with.
            std::size_t same = 0;
            while (same < reach && same < end && text[end - 1 - same] == text[text.size() - 1 - same]) ++same;
            if (same < allowed_ || same == 0 || breaks(text[end])) continue;
            note(values, text[end], static_cast<float>(same));
        }
        for (kernels::TokenValue& value : values) {
            double power = 1.0;  // by products, whose bits are the same everywhere
            for (auto more = static_cast<std::size_t>(value.value); more > allowed_; --more) power *= base_;
            value.value = static_cast<float>(-std::min(multiplier_ * power, 1e6));
        }
        return BiasRows::step(values);
    }

private:
    bool breaks(std::int32_t token) const {
        const auto id = static_cast<std::size_t>(token);
        return id >= breaks_.size() || breaks_[id];
    }
    // Keeps the longest length for each token.
    static void note(std::vector<kernels::TokenValue>& values, std::int32_t token, float length) {
        const auto known = std::ranges::find(values, token, &kernels::TokenValue::token);
        if (known == values.end()) {
            values.push_back({token, length});
        } else {
            known->value = std::max(known->value, length);
        }
    }

    double multiplier_, base_;
    std::size_t allowed_, window_;
    std::vector<bool> breaks_;  // by id
};

std::unique_ptr<Stage> make_dry(std::span<const ParameterValue> parameters, const Vocabulary& vocabulary) {
    const auto& breakers = std::get<std::vector<std::string>>(parameters[4]);
    std::vector<bool> breaks(static_cast<std::size_t>(vocabulary.size()));
    for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
        const std::string_view text = vocabulary.text(id);
        breaks[static_cast<std::size_t>(id)] =
            text.empty() || std::ranges::any_of(breakers, [&](const auto& breaker) {
                return !breaker.empty() && text.find(breaker) != std::string_view::npos;
            });
    }
    return std::make_unique<Dry>(std::get<double>(parameters[0]), std::get<double>(parameters[1]),
                                 static_cast<std::size_t>(std::get<std::int64_t>(parameters[2])),
                                 static_cast<std::size_t>(std::get<std::int64_t>(parameters[3])), std::move(breaks));
}

}  // namespace

std::shared_ptr<const StageFactory> dry_factory() {
    StageDescription description{
        "dry",
        "Lowers tokens that would lengthen a repetition.",
        {.memory = StageMemory::history, .whole_vocabulary = true},
        {{"multiplier", ParameterType::real, 0.0, 0.0, 100.0, {}, "Weight of the penalty, such as 0.8; 0 is off."},
         {"base", ParameterType::real, 1.75, 1.0, 10.0, {}, "Factor for each further token of a repetition."},
         {"allowed_length", ParameterType::integer, std::int64_t{2}, 1.0, 50.0, {}, "The shortest one that counts."},
         {"window",
          ParameterType::integer,
          std::int64_t{1024},
          0.0,
          1048576.0,
          {},
          "How many of the last tokens count."},
         {"breakers",
          ParameterType::text_list,
          std::vector<std::string>{"\n", ":", "\"", "*"},
          {},
          {},
          {},
          "Texts across which nothing is a repetition."}}};
    return make_factory(std::move(description), make_dry);
}

}  // namespace foresay::samplers
