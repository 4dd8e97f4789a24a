#include "speculative/draft_gain.h"

#include <algorithm>
#include <array>

namespace foresay::speculative {

double draft_gain(const Acceptance& acceptance, const CostModel& costs, const DraftOutlook& outlook) {
    const std::int32_t further = std::min(outlook.further, kLookAhead);
    if (further < 1 || outlook.rows >= costs.widest()) return 0.0;
    // What drafts that end after so many further tokens cost, in tokens.
    std::array<double, kLookAhead> cost;
    const double base = costs.verify_ms(outlook.rows);
    for (std::int32_t i = 0; i < further; ++i) {
        const std::int32_t own = i + 1;
        const std::int32_t added = std::min(own * outlook.texts, costs.widest() - outlook.rows);
        const double rows_ms = (costs.verify_ms(outlook.rows + added) - base) * own / added;
        cost[static_cast<std::size_t>(i)] = outlook.value * (rows_ms + outlook.own_ms * own + outlook.step_ms * i);
    }
    const double rate = acceptance.expected();
    double gain = 0.0;
    for (const View view : {View::alone, View::same, View::other}) {
        const double share = acceptance.view_share(outlook.match, view);
        if (share <= 0.0) continue;
        for (int bin = 0; bin < kMarginBins; ++bin) {
            double chain = outlook.survival * acceptance.bin_rate(outlook.match, view, bin);
            double sum = 0.0;
            double best = 0.0;
            for (std::int32_t i = 0; i < further; ++i) {
                sum += chain;
                best = std::max(best, sum - cost[static_cast<std::size_t>(i)]);
                chain *= rate;
            }
            gain += share * acceptance.bin_share(view, bin) * best;
        }
    }
    return gain;
}

}  // namespace foresay::speculative
