// speculative/controller.h: decides, round by round and token by token, how many tokens are drafted, and by which
// source.
//
// The rule: a token is worth drafting while its chance to be emitted exceeds its measured cost (a draft step and one
// more verified row, in milliseconds) times the value of time (tokens per millisecond of the recent rounds). A lookup's
// token costs only its row; the draft model is asked instead where its better chance is worth the step. While no draft
// pays, rounds are plain steps with a short probe now and then. A ledger of the time lost against plain decoding pauses
// drafting even when the estimates are wrong.
//
// Threads:  one caller at a time.
// Cost:     some hundred floating-point operations per drafted token; no allocation.
// Source:   renewal-reward argument: with value of time L, continue while survival > L * marginal cost.
#pragma once

#include <array>
#include <cstdint>

#include "speculative/acceptance.h"
#include "speculative/clock.h"
#include "speculative/cost_model.h"
#include "speculative/drafter.h"

namespace foresay::speculative {

class Controller {
public:
    explicit Controller(Now now = steady_now) : now_(now) {}

    CostModel& costs() { return costs_; }
    const CostModel& costs() const { return costs_; }
    // Sets the milliseconds of a draft step, as measured while nothing else runs.
    void calibrate_draft(double step_ms) { draft_ms_ = step_ms; }

    // A generation begins: learnt rates and costs stay, pauses end.
    void begin();
    // A round begins, with or without a draft model; `proposal` is what a lookup has for its first token. Returns how
    // many tokens the draft may hold, at most `limit`. 0: a plain step.
    std::int32_t plan(std::int32_t limit, bool model, const Proposal& proposal);
    // Whether plan() would return more than 0 now. Where it would not, the round may begin before its text is known.
    bool wants(std::int32_t limit, bool model, const Proposal& proposal);

    // Where the draft's next token comes from: nowhere, from the lookups' `proposal`, or from the draft model.
    enum class Next : std::uint8_t { stop, take, draft };
    Next next(const Proposal& proposal);
    // What next() will return after the token that is being sampled now, before that token is known: `end` when it
    // cannot be `draft`, `more` when it pays to rely on `draft`.
    DraftStopRule::Lookahead lookahead(const Proposal& proposal) const;
    // The draft model starts one or more steps. The first is not timed.
    void start_steps() { step_start_ = -1.0; }
    // `proposal` has become the draft's next token.
    void take(const Proposal& proposal);
    // The draft model's `token` has become the draft's next one; `proposal` is what the lookups had for it.
    void drafted(const Proposal& proposal, std::int32_t token, float margin);
    // The draft has ended. Returns how many of its tokens are worth verifying. `draft_ms`: the time it took in all.
    std::int32_t finish_draft(double draft_ms);

    // `verified` tokens were verified and `accepted` of them emitted, `emitted` in all. `verify_ms` is the forward
    // alone, `round_ms` everything from plan() on, and `emit_ms` of that what the host took to sample the emitted
    // tokens and to hand them on: they take it with a draft and without, so it is no cost of drafting.
    void observe(std::int32_t verified, std::int32_t accepted, std::int32_t emitted, double verify_ms, double round_ms,
                 double emit_ms);

    double draft_ms() const { return draft_ms_; }

private:
    struct Token {
        double chance = 0.0;  // given those before it
        bool drafted = false;
        int match = 0;
        View view = View::alone;
        float margin = 0.0f;
    };

    double value_of_time() const;
    // The best gain, in tokens, of asking the draft model for the next token, and perhaps more, after `count` tokens
    // that are all accepted with chance `survival`.
    double gain_of_draft(std::int32_t count, double survival, std::int32_t match) const;
    bool pays(const Proposal& proposal) const;
    bool tripped();

    Now now_;
    CostModel costs_;
    Acceptance acceptance_;
    double draft_ms_ = 0.0;
    double rate_ = 0.0;  // tokens per millisecond over the last rounds; 0 before anything is known

    // The draft of this round.
    std::array<Token, core::kMaxDraft> draft_;
    std::int32_t count_ = 0;
    std::int32_t steps_ = 0;   // of the draft model
    double survival_ = 1.0;    // chance that all of it is accepted
    std::int32_t limit_ = 0;   // tokens that it may hold
    bool model_ = false;       // a draft model takes part
    double step_start_ = 0.0;  // ms; negative: the step in progress is not timed

    // Plain steps between probes while speculation does not pay.
    std::int32_t plain_left_ = 0;
    std::int32_t plain_span_ = 0;
    bool probing_ = false;
    std::int32_t probe_ = 0;

    std::int32_t pause_ = 0;  // length of the last pause that the ledger asked for
    std::int32_t pause_left_ = 0;
    double ledger_ms_ = 0.0;  // time lost against plain decoding
};

}  // namespace foresay::speculative
