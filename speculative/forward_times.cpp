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

void time_forwards(core::Context& context, CostModel& costs, double budget_ms, Now now) {
    const core::SequenceId id = context.cache().create();
    const std::vector<std::int32_t> tokens = timed_tokens(context, costs.widest());
    const double start = now();
    for (std::int32_t width = 1; width <= std::min(costs.widest(), context.capacity()); width *= 2) {
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
}

}  // namespace foresay::speculative
