#include "speculative/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::speculative {

void schedule_forward(std::span<const SequenceLoad> loads, const ScheduleLimits& limits, kernels::RowClass last,
                      Schedule& schedule) {
    schedule.rows.clear();
    const bool decode = std::ranges::any_of(loads, [](const SequenceLoad& load) { return load.decodes; });
    const bool prefill = std::ranges::any_of(loads, [](const SequenceLoad& load) { return load.prefill_rows > 0; });
    if (decode && (!prefill || last == kernels::RowClass::prefill)) {
        schedule.row_class = kernels::RowClass::decode;
        for (std::size_t i = 0; i < loads.size(); ++i) {
            if (loads[i].decodes) schedule.rows.push_back({i, 1});
        }
        check(schedule.rows.size() <= static_cast<std::size_t>(limits.decode_rows), "more sequences than decode rows");
        return;
    }
    schedule.row_class = kernels::RowClass::prefill;
    std::int32_t left = decode ? std::min(limits.prefill_rows_beside, limits.prefill_rows) : limits.prefill_rows;
    for (std::size_t i = 0; i < loads.size() && left > 0; ++i) {
        const std::int32_t rows = std::min(loads[i].prefill_rows, left);
        if (rows <= 0) continue;
        schedule.rows.push_back({i, rows});
        left -= rows;
    }
}

}  // namespace foresay::speculative
