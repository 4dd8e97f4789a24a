// penalties: lowers the logits of tokens that occur among the last `window` tokens, the prompt included.
//   repeat      divides positive logits and multiplies negative ones (1 is off)
//   frequency   subtracted once per occurrence (0 is off)
//   presence    subtracted once if there is any (0 is off)
// Source: N. Keskar et al., "CTRL", 2019 (repeat); the OpenAI API (frequency, presence).

#include <algorithm>

#include "base/error.h"
#include "samplers/builtin/builtin.h"

namespace foresay::samplers {
namespace {

// How often each token occurs in the window, sorted by token.
class WindowCounts : public StageState {
public:
    explicit WindowCounts(std::size_t window) : ring_(window) { counts_.reserve(std::min<std::size_t>(window, 4096)); }

    std::string_view begin(std::span<const std::int32_t> history, std::size_t) override {
        next_ = filled_ = 0;
        counts_.clear();
        if (history.size() > ring_.size()) history = history.last(ring_.size());
        for (const std::int32_t token : history) push(token);
        return {};
    }
    std::string_view copy(const StageState& other) override {
        const auto& from = static_cast<const WindowCounts&>(other);
        std::copy(from.ring_.begin(), from.ring_.begin() + static_cast<std::ptrdiff_t>(from.filled_), ring_.begin());
        next_ = from.next_;
        filled_ = from.filled_;
        counts_.assign(from.counts_.begin(), from.counts_.end());
        return {};
    }
    std::string_view accept(const AcceptedToken& token) override {
        if (!ring_.empty()) push(token.id);
        return {};
    }
    const std::vector<kernels::TokenCount>& counts() const { return counts_; }

private:
    std::vector<kernels::TokenCount>::iterator at(std::int32_t token) {
        return std::lower_bound(counts_.begin(), counts_.end(), token,
                                [](const kernels::TokenCount& entry, std::int32_t id) { return entry.token < id; });
    }
    void push(std::int32_t token) {
        if (filled_ == ring_.size()) {
            const auto oldest = at(ring_[next_]);
            if (--oldest->count == 0) counts_.erase(oldest);
        } else {
            ++filled_;
        }
        ring_[next_] = token;
        next_ = (next_ + 1) % ring_.size();
        const auto entry = at(token);
        if (entry != counts_.end() && entry->token == token) {
            ++entry->count;
        } else {
            counts_.insert(entry, {token, 1});
        }
    }

    std::vector<std::int32_t> ring_;
    std::size_t next_ = 0;
    std::size_t filled_ = 0;
    std::vector<kernels::TokenCount> counts_;
};

class PenaltiesStage : public Stage {
public:
    PenaltiesStage(const kernels::Penalties& penalties, std::size_t window) : penalties_(penalties), window_(window) {}
    std::unique_ptr<StageState> make_state() const override { return std::make_unique<WindowCounts>(window_); }
    bool idle() const override {
        return window_ == 0 ||
               (penalties_.repeat == 1.0f && penalties_.frequency == 0.0f && penalties_.presence == 0.0f);
    }
    bool whole_vocabulary() const override { return true; }
    StageKind kind() const override { return StageKind::step; }
    kernels::SamplingStep step(const StageState* state, std::vector<kernels::TokenCount>& counts) const override {
        const auto& live = static_cast<const WindowCounts*>(state)->counts();
        counts.reserve(std::min(window_, kRoom));  // so that a growing text does not reallocate
        counts.assign(live.begin(), live.end());
        return {.kind = kernels::SamplingStepKind::penalties, .penalties = penalties_, .counts = counts};
    }

private:
    static constexpr std::size_t kRoom = 4096;  // entries reserved from the start, at most; more reallocate

    kernels::Penalties penalties_;
    std::size_t window_;
};

}  // namespace

std::shared_ptr<const StageFactory> penalties_factory() {
    StageDescription description{
        "penalties",
        "Makes tokens less likely that occurred recently.",
        {.memory = StageMemory::history, .whole_vocabulary = true},
        {{"repeat", ParameterType::real, 1.0, 0.01, 100.0, {}, "Divides the logit of a token that occurred; 1 is off."},
         {"frequency", ParameterType::real, 0.0, -100.0, 100.0, {}, "Subtracted per occurrence; 0 is off."},
         {"presence", ParameterType::real, 0.0, -100.0, 100.0, {}, "Subtracted once if it occurred; 0 is off."},
         {"window",
          ParameterType::integer,
          std::int64_t{64},
          0.0,
          1048576.0,
          {},
          "How many of the last tokens count, the prompt included; 0 is off."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const auto number = [&](std::size_t i) { return static_cast<float>(std::get<double>(parameters[i])); };
        const kernels::Penalties penalties{.repeat = number(0), .frequency = number(1), .presence = number(2)};
        const auto window = static_cast<std::size_t>(std::get<std::int64_t>(parameters[3]));
        return std::unique_ptr<Stage>(std::make_unique<PenaltiesStage>(penalties, window));
    });
}

}  // namespace foresay::samplers
