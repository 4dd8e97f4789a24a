// speculative/controller.h: decides, round by round and token by token, how long a run is drafted and verified.
//
// The rule: a token is worth drafting while its chance to be emitted, times the value of time (tokens per millisecond
// of the best policy), exceeds the measured cost of a draft step and one more verified row. Width 0 is a plan: then
// plain steps follow, and a short probe now and then. A ledger of time lost against plain decoding is the circuit
// breaker, however wrong the estimates are.
//
// Threads:  one caller at a time.
// Cost:     about a hundred floating-point operations per drafted token; no allocation.
// Source:   renewal-reward argument: with value of time L, continue while survival > L * marginal cost.
#pragma once

#include <cstdint>

#include "speculative/acceptance.h"
#include "speculative/cost_model.h"
#include "speculative/drafter.h"

namespace foresay::speculative {

class Controller final : public RunGauge {
public:
    // Milliseconds on a clock that never goes back. Simulations bring their own.
    using Now = double (*)();
    static double steady_now();
    explicit Controller(Now now = steady_now) : now_(now) {}

    CostModel& costs() { return costs_; }
    const CostModel& costs() const { return costs_; }
    // Milliseconds of a draft step, from a measurement in quiet.
    void calibrate_draft(double step_ms) { draft_ms_ = step_ms; }

    // How many tokens the next round may draft, at most `limit`. 0: a plain step.
    std::int32_t plan(std::int32_t limit);

    // The drafter starts, and proposes token by token.
    void start_run();
    bool extend(std::int32_t count, float margin) override;
    // The run has ended with `run`: how many of its tokens are worth verifying. `draft_ms`: what it took in all.
    std::int32_t finish_run(const DraftRun& run, double draft_ms);

    // `verified` tokens were verified and `accepted` of them emitted, `emitted` in all. `verify_ms` is the forward
    // alone, `round_ms` everything from plan() on.
    void observe(const DraftRun& run, std::int32_t verified, std::int32_t accepted, std::int32_t emitted,
                 double verify_ms, double round_ms);

    double draft_ms() const { return draft_ms_; }

private:
    double value_of_time() const;
    // The best gain, in tokens, of drafting on behind `count` tokens that survive with chance `survival`, when the
    // last `count - kept` of them would be verified only then.
    double gain_of_more(std::int32_t count, double survival, std::int32_t limit) const;
    bool tripped();

    Now now_;
    CostModel costs_;
    Acceptance acceptance_;
    double draft_ms_ = 0.0;
    double rate_ = 0.0;      // tokens per millisecond of late; 0 before anything is known
    double survival_ = 1.0;  // of the run so far
    std::int32_t limit_ = 0;
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
