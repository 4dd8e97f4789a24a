#include "speculative/forward_times.h"

#include <algorithm>
#include <span>

namespace foresay::speculative {

std::vector<std::int32_t> timed_tokens(const core::Context& context, std::int32_t count) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < count; ++i) {
        tokens.push_back(static_cast<std::int32_t>(i * 7919LL % context.model().config().shape.vocab));
    }
    return tokens;
}

bool time_forwards(core::Context& context, CostModel& costs, double budget_ms, Now now) {
    const std::int32_t widest = std::min(costs.widest(), context.capacity());
    const core::SequenceId id = context.cache().create();
    if (id < 0) return false;
    if (context.cache().missing_pages(id, widest) > context.cache().free_pages()) {
        context.cache().drop(id);
        return false;
    }
    const std::vector<std::int32_t> tokens = timed_tokens(context, widest);
    const double start = now();
    for (std::int32_t width = 1; width <= widest; width *= 2) {
        double best = 0.0;
        for (int repeat = -1; repeat < 2; ++repeat) {
            const double begin = now();
            context.decode(std::span(tokens).first(static_cast<std::size_t>(width)), 1, id);
            context.wait();
            const double ms = now() - begin;
            context.truncate(0, id);
            if (repeat >= 0) best = repeat == 0 ? ms : std::min(best, ms);
        }
        costs.calibrate(width, best);
        if (now() - start > budget_ms) break;
    }
    context.cache().drop(id);
    return true;
}

double time_after(core::Context& before, core::Context& context, Now now) {
    constexpr int kRepeats = 3;
    const core::SequenceId first = before.cache().create();
    const core::SequenceId second = context.cache().create();
    double best = 0.0;
    const bool room =
        first >= 0 && second >= 0 && before.cache().missing_pages(first, 1) <= before.cache().free_pages();
    for (int repeat = 0; room && repeat < kRepeats; ++repeat) {
        if (context.cache().missing_pages(second, 1) > context.cache().free_pages()) break;
        const std::int32_t token = 1;
        before.decode(std::span(&token, 1), 1, first);
        before.wait();
        const double begin = now();
        context.decode(std::span(&token, 1), 1, second);
        context.wait();
        const double ms = now() - begin;
        best = repeat == 0 ? ms : std::min(best, ms);
        before.truncate(0, first);
        context.truncate(0, second);
    }
    if (first >= 0) before.cache().drop(first);
    if (second >= 0) context.cache().drop(second);
    return best;
}

}  // namespace foresay::speculative
