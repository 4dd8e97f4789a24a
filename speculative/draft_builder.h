// speculative/draft_builder.h: puts the draft of a round together from its sources.
//
// Lookups propose tokens one by one for next to nothing; a draft model proposes them at a cost. With a controller they
// take turns within one draft: of what the lookups propose the likeliest is taken while it is good enough, the draft
// model is asked in between, and whether it agrees with the lookup tells how far to trust it. Without a controller the
// whole draft comes from the draft model, or from the first lookup that has one.
//
// Threads:  one caller at a time.
// Cost:     what the draft model takes; no allocation.
// Errors:   the constructor throws Error for two drafters that are no lookups.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "speculative/controller.h"
#include "speculative/drafter.h"

namespace foresay::speculative {

class DraftBuilder final : private DraftStopRule {
public:
    explicit DraftBuilder(std::span<const std::unique_ptr<Drafter>> drafters, Now now = steady_now);

    // The drafter that is no lookup; null: there is none.
    Drafter* model() const { return model_; }

    void clear() {
        draft_.clear();
        draft_ms_ = 0.0;
    }
    // Drafts as long as the controller finds it worth it; returns how many tokens are worth verifying. With
    // task.may_stay_open there may be one more, which open() and close() are for.
    std::int32_t build(const DraftTask& task, Controller& controller);
    // task.max_tokens tokens; fewer where the source ends the text or knows no more. Returns how many.
    std::int32_t build_fixed(const DraftTask& task);

    // The slot of a token that is still being sampled; negative: there is none.
    std::int32_t open() const { return draft_.open_slot; }
    // Waits for that token. Then it is the last of tokens(), unless the chain ruled out every token.
    void close();

    std::span<const std::int32_t> tokens() const { return draft_.tokens; }
    const Drafter* source(std::int32_t index) const { return sources_[static_cast<std::size_t>(index)]; }
    double draft_ms() const { return draft_ms_; }

private:
    bool keep_drafting(std::int32_t count, float margin) override;
    Lookahead lookahead() override;
    void note_drafted();
    void take();
    void look_up(const DraftTask& task);

    Now now_;
    Drafter* model_ = nullptr;
    std::vector<Drafter*> lookups_;
    DraftedTokens draft_;
    std::array<const Drafter*, core::kMaxDraft> sources_{};
    double start_ = 0.0, draft_ms_ = 0.0;

    // While a draft is built.
    Controller* controller_ = nullptr;
    const DraftTask* task_ = nullptr;
    Controller::Next next_ = Controller::Next::stop;
    std::int32_t limit_ = 0;             // tokens of the draft
    std::int32_t noted_ = 0;             // tokens that the controller knows of
    Proposal proposal_;                  // for the token after them
    const Drafter* proposer_ = nullptr;  // the lookup that made it
};

}  // namespace foresay::speculative
