// speculative/draft_gain.h: what one more token of the draft model, and those that may follow it, promise to a text.
//
// What follows depends on the token's margin and on whether a lookup proposes the same one, which is not known before
// the step. So the estimate sums over both: after each outcome the draft ends where it is best.
//
// Threads:  pure functions.
// Cost:     some hundred floating-point operations.
// Source:   renewal-reward argument: with value of time L, continue while survival > L * marginal cost.
#pragma once

#include <cstdint>

#include "speculative/acceptance.h"
#include "speculative/cost_model.h"

namespace foresay::speculative {

// Draft tokens that an estimate reaches ahead.
inline constexpr std::int32_t kLookAhead = 8;

struct DraftOutlook {
    std::int32_t rows = 1;     // of the forward that verifies the draft so far
    std::int32_t texts = 1;    // that draft side by side: each pays its share of the rows that all of them add
    std::int32_t further = 1;  // most further tokens
    double survival = 1.0;     // the chance that all of the draft so far is emitted
    int match = 0;             // class of the lookup's match: match_class()
    double own_ms = 0.0;       // of each of its rows, beyond any other row
    double step_ms = 0.0;      // of each step of the draft model after the next one
    double value = 0.0;        // of time: tokens per millisecond
};

// The best expected tokens less cost, in tokens, without the time of the next step itself.
double draft_gain(const Acceptance& acceptance, const CostModel& costs, const DraftOutlook& outlook);

}  // namespace foresay::speculative
