// dry ("don't repeat yourself"): lowers the tokens that would lengthen a repetition. Where the text ends with n tokens
// that occurred before, n >= allowed_length, the token that followed there loses
//     multiplier * base^(n - allowed_length)
// for the longest such n. Repetitions do not reach across a token whose text has one of `breakers`, nor across a
// control token, and neither is ever lowered itself. Cost:   linear in the window for each token. Source: P. E.
// Weidmann, text-generation-webui, 2024; llama.cpp. There a breaker may also be several tokens long.

#include <algorithm>
#include <string>

#include "base/error.h"
#include "samplers/builtin/builtin.h"
#include "samplers/builtin/recent_text.h"

namespace foresay::samplers {
namespace {

constexpr double kMost = 1e6;  // of a penalty: a token with it is never sampled beside others

// matches[i]: how many of the last tokens of `text` are also the tokens before text[i], at most `most`. The
// Z-algorithm, read from the end, so that it takes a time linear in the text.
void find_matches(std::span<const std::int32_t> text, std::size_t most, std::vector<std::size_t>& matches) {
    const std::size_t size = text.size();
    const auto back = [&](std::size_t i) { return text[size - 1 - i]; };
    matches.assign(size, 0);
    // z(k): the length of the match that ends k tokens before the end. [left, right) is the one that reaches farthest.
    const auto z = [&](std::size_t k) -> std::size_t& { return matches[size - k]; };
    std::size_t left = 0, right = 0;
    for (std::size_t k = 1; k < size; ++k) {
        std::size_t same = k < right ? std::min(z(k - left), right - k) : 0;
        while (k + same < size && back(same) == back(k + same)) ++same;
        if (k + same > right) {
            left = k;
            right = k + same;
        }
        z(k) = same;
    }
    for (std::size_t& match : matches) match = std::min(match, most);
}

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
        while (reach < text.size() && !breaks(text[text.size() - 1 - reach])) ++reach;
        if (reach < allowed_) return BiasRows::step(values);
        static thread_local std::vector<std::size_t> matches;
        find_matches(text, reach, matches);
        for (std::size_t at = 1; at < text.size(); ++at) {
            if (matches[at] < allowed_ || breaks(text[at])) continue;
            values.push_back({text[at], penalty(matches[at])});
        }
        BiasRows::keep_lowest(values);
        return BiasRows::step(values);
    }

private:
    bool breaks(std::int32_t token) const {
        const auto id = static_cast<std::size_t>(token);
        return id >= breaks_.size() || breaks_[id];
    }
    float penalty(std::size_t length) const {
        double power = multiplier_;  // by products, whose bits are the same everywhere
        for (; length > allowed_ && power < kMost && base_ > 1.0; --length) power *= base_;
        return static_cast<float>(-std::min(power, kMost));
    }

    double multiplier_, base_;
    std::size_t allowed_, window_;
    std::vector<bool> breaks_;  // by id
};

std::unique_ptr<Stage> make_dry(std::span<const ParameterValue> parameters, const Vocabulary& vocabulary) {
    const auto& breakers = std::get<std::vector<std::string>>(parameters[4]);
    std::vector<bool> breaks(static_cast<std::size_t>(vocabulary.size()));
    std::vector<bool> found(breakers.size());
    for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
        const std::string_view text = vocabulary.text(id);
        bool has = text.empty();
        for (std::size_t i = 0; i < breakers.size(); ++i) {
            if (breakers[i].empty() || text.find(breakers[i]) == std::string_view::npos) continue;
            has = found[i] = true;
        }
        breaks[static_cast<std::size_t>(id)] = has;
    }
    for (std::size_t i = 0; i < breakers.size(); ++i) {
        // Short ones may be missing from a vocabulary, and then also from every text.
        if (!found[i] && breakers[i].size() > 1)
            throw Error("dry: no token of this model contains the breaker '" + breakers[i] +
                        "'; a breaker is looked for within single tokens, so take a shorter one");
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
