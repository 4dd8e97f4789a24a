#include "speculative/scheduler.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::speculative {

void schedule_forward(std::span<const SequenceLoad> loads, const ScheduleLimits& limits, std::int32_t decoded,
                      Schedule& schedule) {
    schedule.rows.clear();
    schedule.mixed = false;
    const auto decoding = std::ranges::count_if(loads, [](const SequenceLoad& load) { return load.decode_rows > 0; });
    const bool prefill = std::ranges::any_of(loads, [](const SequenceLoad& load) { return load.prefill_rows > 0; });
    if (decoding > 0 && (!prefill || decoded < limits.decode_turn)) {
        schedule.row_class = kernels::RowClass::decode;
        // One row for each, and what is left for those that have more.
        auto left = limits.decode_rows - static_cast<std::int32_t>(decoding);
        check(left >= 0, "more sequences than decode rows");
        const bool waits = std::ranges::any_of(loads, [](const SequenceLoad& load) { return load.decode_rows == 1; });
        if (waits) left = std::min(left, limits.prefill_rows_beside);
        for (std::size_t i = 0; i < loads.size(); ++i) {
            if (loads[i].decode_rows <= 0) continue;
            const std::int32_t more = std::min(loads[i].decode_rows - 1, left);
            schedule.rows.push_back({i, 1 + more});
            left -= more;
        }
        return;
    }
    std::int32_t left = decoding > 0 ? std::min(limits.prefill_rows_beside, limits.prefill_rows) : limits.prefill_rows;
    const auto beside = std::min(left, limits.decode_rows - static_cast<std::int32_t>(decoding));
    // Where those that decode take all rows, prompts have a forward of their own.
    schedule.mixed = limits.mixes && decoding > 0 && beside > 0;
    schedule.row_class = schedule.mixed ? kernels::RowClass::decode : kernels::RowClass::prefill;
    if (schedule.mixed) left = beside;
    for (std::size_t i = 0; i < loads.size(); ++i) {
        if (schedule.mixed && loads[i].decode_rows > 0) {
            schedule.rows.push_back({i, 1});
            continue;
        }
        const std::int32_t rows = std::min(loads[i].prefill_rows, left);
        if (rows <= 0) continue;
        schedule.rows.push_back({i, rows});
        left -= rows;
    }
}

std::int32_t decode_turn(std::span<const SequenceLoad> loads, double prefill_ms, double decode_ms, bool mixes) {
    const auto decoding = std::ranges::count_if(loads, [](const SequenceLoad& load) { return load.decode_rows > 0; });
    const auto prompts = std::ranges::count_if(loads, [](const SequenceLoad& load) { return load.prefill_rows > 0; });
    if (decoding == 0 || prompts == 0 || !(prefill_ms > 0.0) || !(decode_ms > 0.0)) return 1;
    const double weight = std::min(1.0, static_cast<double>(decoding) / static_cast<double>(prompts));
    const double prompts_ms = mixes ? std::max(0.0, prefill_ms - decode_ms) : prefill_ms;
    double forwards = kDecodeShare / (1.0 - kDecodeShare) * weight * prompts_ms / decode_ms;
    std::int32_t rows = 0;
    for (const SequenceLoad& load : loads) rows += load.prefill_rows;
    if (mixes) {
        forwards -= 1.0;  // they have had one of them
    } else if (decoding >= kManyDecode && rows < kCompanyRows) {
        forwards = std::max(forwards, kCompanyMs * static_cast<double>(decoding) / decode_ms);
    }
    return std::clamp(static_cast<std::int32_t>(std::clamp(forwards, 0.0, 1e6) + 0.5), 1, kLongestDecodeTurn);
}

void Turns::note(kernels::RowClass row_class, std::span<const SequenceLoad> loads, double ms) {
    const bool prefill = row_class == kernels::RowClass::prefill;
    decoded = prefill ? 0 : std::min(decoded + 1, kLongestDecodeTurn);
    const auto waits = [prefill](const SequenceLoad& load) {
        return (prefill ? load.decode_rows : load.prefill_rows) > 0;
    };
    if (std::ranges::none_of(loads, waits)) return;
    constexpr double kBlend = 0.3;
    double& known = prefill ? prefill_ms : decode_ms;
    known = known > 0.0 ? known + kBlend * (std::min(ms, 3.0 * known) - known) : ms;
}

std::int64_t height(const WaitingRequest& request) {
    return request.priority + static_cast<std::int64_t>(request.passed_over / kPassesToRise);
}

std::size_t next_admitted(std::span<const WaitingRequest> waiting) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < waiting.size(); ++i) {
        const std::int64_t here = height(waiting[i]);
        const std::int64_t there = height(waiting[best]);
        if (here > there || (here == there && waiting[i].served < waiting[best].served)) best = i;
    }
    return best;
}

std::size_t next_preempted(std::span<const RunningRequest> running) {
    const auto before = [](const RunningRequest& a, const RunningRequest& b) {
        if (a.paused != b.paused) return a.paused;
        if (a.priority != b.priority) return a.priority < b.priority;
        return a.arrival > b.arrival;
    };
    return static_cast<std::size_t>(std::ranges::min_element(running, before) - running.begin());
}

}  // namespace foresay::speculative
