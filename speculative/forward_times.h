// speculative/forward_times.h: measures what decode rows cost, before the first token of a text.
//
// Threads:  the one that uses the context.
// Cost:     the forwards, within the budget; allocates.
#pragma once

#include <cstdint>
#include <vector>

#include "core/models/context.h"
#include "speculative/clock.h"
#include "speculative/cost_model.h"

namespace foresay::speculative {

// Tokens to time a forward with. They differ, because rows of a mixture of experts that are alike would choose the same
// experts.
std::vector<std::int32_t> timed_tokens(const core::Context& context, std::int32_t count);

// Calibrates 1, 2, 4, ... rows, up to the widest of `costs`, until `budget_ms` is used up: the better of two forwards
// of each, on a sequence of its own. False: the cache has no room for one now, and nothing was measured.
bool time_forwards(core::Context& context, CostModel& costs, double budget_ms, Now now);

// Calibrates what attention adds, after time_forwards(): one row and several of a sequence after many positions, on a
// sequence of its own. Their keys and values are whatever the cache's pages hold, for only the time matters. Where
// there is no room for many positions now, or one forward takes longer than `budget_ms`, it is derived from the model's
// shape and the price of a row.
void time_attention(core::Context& context, CostModel& costs, double budget_ms, Now now);

// Milliseconds of a forward of one row of `context` that comes right after one of `before`, whose weights have taken
// the place of its own in the machine's caches. 0: a cache has no room for one now.
double time_after(core::Context& before, core::Context& context, Now now);

}  // namespace foresay::speculative
