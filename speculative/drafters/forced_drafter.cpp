#include "speculative/drafters/forced_drafter.h"

#include <algorithm>

#include "samplers/chain.h"

namespace foresay::speculative {
namespace {

// How often proposals were right, lately.
class Share {
public:
    explicit Share(double prior) : value_(prior) {}
    double value() const { return value_; }
    void note(bool right) { value_ += kBlend * ((right ? 1.0 : 0.0) - value_); }

private:
    static constexpr double kBlend = 0.06;
    double value_;
};

class ForcedDrafter final : public Drafter {
public:
    std::string_view name() const override { return "forced"; }
    bool is_lookup() const override { return true; }

    void begin(std::span<const std::int32_t>) override { noted_.clear(); }
    void rewind(std::int32_t) override { noted_.clear(); }

    void begin_round(const samplers::Chain& live) override {
        forces_ = live.forces();
        if (!forces_) return;
        learn(live.history());
        ahead_.start(live);
        advanced_ = 0;
        tokens_.clear();
        at_ = 0;
    }

    Proposal look_up(std::span<const std::int32_t> sequence, std::span<const std::int32_t> draft) override {
        if (!forces_ || draft.size() < advanced_) return {};
        for (; advanced_ < draft.size(); ++advanced_) {
            const std::int32_t token = draft[advanced_];
            if (at_ < tokens_.size() && tokens_[at_] == token) {
                ++at_;
            } else {
                tokens_.clear();
                at_ = 0;
            }
            ahead_.advance(token);
        }
        if (at_ == tokens_.size()) {
            ahead_.forced(tokens_);
            at_ = 0;
        }
        if (at_ == tokens_.size()) return {};
        // The last token may be longer in the text, because it may join what follows.
        const bool last = at_ + 1 == tokens_.size();
        begun_ = sequence.size();
        noted_.resize(draft.size());
        for (std::size_t i = 0; i < draft.size(); ++i) noted_[i].drafted = draft[i];
        noted_.push_back({.drafted = -1, .proposed = tokens_[at_], .last = last});
        return {.token = tokens_[at_], .chance = share(last).value(), .length = kLength};
    }

    void propose(const DraftTask& task, DraftedTokens& draft) override {
        while (static_cast<std::int32_t>(draft.tokens.size()) < task.max_tokens) {
            const Proposal found = look_up(task.tokens, draft.tokens);
            if (found.token < 0) return;
            draft.tokens.push_back(found.token);
            draft.margins.push_back(static_cast<float>(found.length));
        }
    }

private:
    static constexpr std::int32_t kLength = 8;  // told as that of a match: a long one
    // For a place after the sequence: what the draft had there, and what was proposed. -1: nothing.
    struct Noted {
        std::int32_t drafted = -1, proposed = -1;
        bool last = false;
    };

    Share& share(bool last) { return last ? last_ : inner_; }

    // From the text that became of the last round. A proposal was made for the draft before it, so it is judged only
    // where the text agrees with that.
    void learn(std::span<const std::int32_t> text) {
        for (std::size_t i = 0; i < noted_.size() && begun_ + i < text.size(); ++i) {
            const std::int32_t token = text[begun_ + i];
            if (noted_[i].proposed >= 0) share(noted_[i].last).note(noted_[i].proposed == token);
            if (noted_[i].drafted != token) break;
        }
        noted_.clear();
    }

    bool forces_ = false;
    samplers::DraftChain ahead_;
    std::size_t advanced_ = 0;          // tokens of the draft that ahead_ has
    std::vector<std::int32_t> tokens_;  // that are forced, from some place of the draft on
    std::size_t at_ = 0;                // of those, the ones that the draft has
    std::size_t begun_ = 0;             // length of the sequence in the round of noted_
    std::vector<Noted> noted_;
    Share inner_{0.95}, last_{0.85};
};

}  // namespace

std::unique_ptr<Drafter> make_forced_drafter() { return std::make_unique<ForcedDrafter>(); }

}  // namespace foresay::speculative
