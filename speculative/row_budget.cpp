#include "speculative/row_budget.h"

#include <algorithm>

namespace foresay::speculative {
namespace {

// A draft must promise this many tokens beyond its cost, because the best of many estimates is optimistic.
constexpr double kLeastGain = 0.05;
// In plain forwards: a loss of kTrip, and kTripAlone more for a single text, pauses drafting, each time for twice as
// many rounds, until drafting gains again. What many texts lose varies less, so less of it is proof. At most kCredit of
// past gains is kept.
constexpr double kTrip = 1.5;
constexpr double kTripAlone = 2.5;
constexpr double kCredit = 2.0;
constexpr std::int32_t kFirstPause = 32;
constexpr std::int32_t kLastPause = 1024;

}  // namespace

std::size_t rows_worth(std::span<DraftedRow> rows, const CostModel& costs, std::int32_t base, double value) {
    const auto worth_of = [value](const DraftedRow& row) { return row.chance - value * row.own_ms; };
    std::ranges::sort(rows, [&worth_of](const DraftedRow& a, const DraftedRow& b) {
        const double first = worth_of(a), second = worth_of(b);
        if (first != second) return first > second;
        if (a.depth != b.depth) return a.depth < b.depth;
        return a.sequence < b.sequence;
    });
    const double plain = costs.verify_ms(base);
    double tokens = 0.0;
    double best = kLeastGain;
    std::size_t worth = 0;
    for (std::size_t i = 0; i < rows.size() && base + static_cast<std::int32_t>(i) < costs.widest(); ++i) {
        tokens += worth_of(rows[i]);
        const double gain = tokens - value * (costs.verify_ms(base + static_cast<std::int32_t>(i) + 1) - plain);
        if (gain <= best) continue;
        best = gain;
        worth = i + 1;
    }
    return worth;
}

bool RowLedger::allows() {
    if (pause_left_ > 0) {
        --pause_left_;
        return false;
    }
    if (lost_ < 0.0) pause_ = 0;
    if (lost_ <= trip_) return true;
    pause_ = std::clamp(2 * pause_, kFirstPause, kLastPause);
    pause_left_ = pause_;
    lost_ = 0.5 * trip_;
    return false;
}

void RowLedger::note(std::int32_t emitted, std::int32_t sequences, double ms, double plain_ms) {
    if (sequences < 1 || !(plain_ms > 0.0)) return;
    trip_ = kTrip + kTripAlone / sequences;
    const double rounds = static_cast<double>(emitted) / sequences;  // that plain decoding would have needed
    // An interrupted forward says little.
    lost_ = std::max(std::min(ms / plain_ms, 3.0) - rounds, -1.0) + lost_;
    lost_ = std::max(lost_, -kCredit);
}

}  // namespace foresay::speculative
