// speculative/row_budget.h: which drafted tokens of many sequences the next forward verifies.
//
// The rule: a row is worth its place while the chance that its token is emitted exceeds what the row adds to the
// forward's time, at the value of that time in tokens. Chances fall along a draft, so taking the highest chances of all
// sequences first takes a beginning of each draft. A row after many positions costs more than one after few, and is
// worth so much less. What a forward costs rises in steps, so the best number of rows is
// looked for past a step that does not pay by itself.
//
// RowLedger sums up the time that drafting has lost against plain decoding, as it was measured, and pauses it when the
// estimates prove wrong: a batch is never much slower than it would be without.
//
// Threads:  one caller at a time.
// Cost:     O(rows log rows); no allocation.
#pragma once

#include <cstdint>
#include <span>

#include "speculative/cost_model.h"

namespace foresay::speculative {

struct DraftedRow {
    std::int32_t sequence = 0;  // of the caller's numbering
    std::int32_t depth = 0;     // in its draft, from 0
    double chance = 0.0;        // that its token is emitted; at most that of the depth before
    double own_ms = 0.0;        // what it costs beyond any other row; the same for all of a sequence
};

// Sorts `rows` so that those worth most come first, and returns how many of them are worth verifying in a forward that
// has `base` rows without them. `value`: tokens per millisecond that the batch emits otherwise.
std::size_t rows_worth(std::span<DraftedRow> rows, const CostModel& costs, std::int32_t base, double value);

class RowLedger {
public:
    // Before a round: whether drafts are allowed in it.
    bool allows();
    // After a round that was allowed: `emitted` tokens of `sequences` sequences took `ms`, of which a plain forward
    // would have taken `plain_ms` for a token of each.
    void note(std::int32_t emitted, std::int32_t sequences, double ms, double plain_ms);
    // A loss of so many plain forwards that no round has shown.
    void charge(double forwards) { lost_ += forwards; }

private:
    double lost_ = 0.0;  // in plain forwards
    double trip_ = 0.0;  // likewise: what pauses drafting
    std::int32_t pause_ = 0, pause_left_ = 0;
};

}  // namespace foresay::speculative
