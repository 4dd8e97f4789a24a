// speculative/draft_builder.h: assembles the draft of a round from its sources.
//
// A lookup's token costs next to nothing, a draft model's token costs a forward. build() mixes both in one draft: the
// controller takes the lookups' likeliest proposal while it is good enough and asks the draft model otherwise. How
// often the two agree tells it how far to trust the lookups. build_fixed() takes the whole draft from the draft model,
// or from the first lookup that has a proposal.
//
// Threads:  one caller at a time.
// Cost:     what the draft model takes; no allocation.
// Errors:   the constructor throws Error when more than one drafter is not a lookup.
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
    // `forced`, if not null, is a lookup that goes before the others.
    explicit DraftBuilder(std::span<const std::unique_ptr<Drafter>> drafters, Now now = steady_now,
                          Drafter* forced = nullptr);

    // Another lookup, which must outlive the builder.
    void add(Drafter& lookup) { lookups_.push_back(&lookup); }
    // The drafter that is not a lookup; null: there is none.
    Drafter* model() const { return model_; }

    void clear() {
        draft_.clear();
        draft_ms_ = 0.0;
    }
    // Drafts while the controller finds it worthwhile. Returns how many tokens are worth verifying. With
    // task.may_stay_open the draft may end in one more token that is still being sampled: see open() and close().
    std::int32_t build(const DraftTask& task, Controller& controller);
    // Whether build() would draft nothing now. Then the controller has counted a round without a draft.
    bool rests(const DraftTask& task, Controller& controller);
    // Drafts task.max_tokens tokens, fewer where the source ends the text or has no proposal: what is forced, then the
    // rest from one source. Returns how many.
    std::int32_t build_fixed(const DraftTask& task);

    // The slot of a token that is still being sampled; negative: there is none.
    std::int32_t open() const { return draft_.open_slot; }
    // Waits for that token and appends it to tokens(), unless the chain ruled out every token.
    void close();

    std::span<const std::int32_t> tokens() const { return draft_.tokens; }
    const Drafter* source(std::int32_t index) const { return sources_[static_cast<std::size_t>(index)]; }
    double draft_ms() const { return draft_ms_; }

private:
    bool keep_drafting(std::int32_t count, float margin) override;
    Lookahead lookahead() override;
    void note_drafted();
    void take();
    void begin(const DraftTask& task);
    void look_up(const DraftTask& task);

    Now now_;
    Drafter* model_ = nullptr;
    Drafter* forced_ = nullptr;
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
