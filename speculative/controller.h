// speculative/controller.h: decides, round by round and token by token, how long a run becomes and who continues it.
//
// The rule: a token is worth drafting while its chance to be emitted, times the value of time (tokens per millisecond
// of the best policy), exceeds the measured cost of a draft step and one more verified row. An offered token costs only
// its row; the draft model is asked instead where what it is better by is worth its step. Width 0 is a plan: then plain
// steps follow, and a short probe now and then. A ledger of time lost against plain decoding is the circuit breaker,
// however wrong the estimates are.
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
    // Milliseconds of a draft step, from a measurement in quiet.
    void calibrate_draft(double step_ms) { draft_ms_ = step_ms; }

    // Another text begins: what was learnt stays, pauses end.
    void begin();
    // A round begins, with or without a draft model; `offer` is what a free source has for its first token. How many
    // tokens the run may hold, at most `limit`. 0: a plain step.
    std::int32_t plan(std::int32_t limit, bool model, const Offer& offer);

    // What the run's next token shall be, when `offer` could be it.
    enum class Next : std::uint8_t { stop, take, draft };
    Next next(const Offer& offer);
    // What next() will say of the token behind the one that is being drawn now, before that one is known: `end` when it
    // cannot be `draft`, `more` when it pays to count on that.
    RunGauge::Outlook outlook(const Offer& offer) const;
    // The drafter starts a step, or a sequence of steps.
    void start_steps() { step_start_ = -1.0; }
    // The run has got a token: the offered one, or one of the draft with its margin where `offer` was to be had.
    void take(const Offer& offer);
    void drafted(const Offer& offer, std::int32_t token, float margin);
    // The run has ended: how many of its tokens are worth verifying. `draft_ms`: what it took in all.
    std::int32_t finish_run(double draft_ms);

    // `verified` tokens were verified and `accepted` of them emitted, `emitted` in all. `verify_ms` is the forward
    // alone, `round_ms` everything from plan() on.
    void observe(std::int32_t verified, std::int32_t accepted, std::int32_t emitted, double verify_ms, double round_ms);

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
    // The best gain, in tokens, of asking the draft for the next token, and perhaps more, behind a run of `count` tokens
    // that survives with chance `survival`.
    double gain_of_draft(std::int32_t count, double survival, std::int32_t match) const;
    double gain_beyond(std::int32_t count, double reached, double time_value, std::int32_t last) const;
    bool tripped();

    Now now_;
    CostModel costs_;
    Acceptance acceptance_;
    double draft_ms_ = 0.0;
    double rate_ = 0.0;  // tokens per millisecond of late; 0 before anything is known

    // The run.
    std::array<Token, core::kMaxDraft> run_;
    std::int32_t count_ = 0;
    std::int32_t steps_ = 0;  // of the draft model
    double survival_ = 1.0;
    std::int32_t limit_ = 0;
    bool model_ = false;
    double step_start_ = 0.0;

    // Plain steps between probes while speculation does not pay.
    std::int32_t plain_left_ = 0;
    std::int32_t plain_span_ = 0;
    bool probing_ = false;
    std::int32_t probe_ = 0;

    std::int32_t pause_ = 0;  // length of the last pause that the ledger ordered
    std::int32_t pause_left_ = 0;
    double ledger_ms_ = 0.0;  // time lost against plain decoding
};

}  // namespace foresay::speculative
