#include "speculative/forward_times.h"

#include <algorithm>
#include <span>

namespace foresay::speculative {

namespace {

// For the weights and one row: in the layers, and in the LM head.
std::int64_t multiplications(const kernels::ModelShape& shape) {
    const std::int64_t width = shape.d_model;
    const std::int64_t heads = 2LL * (shape.heads + shape.kv_heads) * shape.head_dim;
    const std::int64_t network = 3LL * (shape.d_ff + static_cast<std::int64_t>(shape.experts_used) * shape.expert_ff);
    return shape.layers * width * (heads + network) + width * shape.vocab;
}

}  // namespace

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

void time_attention(core::Context& context, CostModel& costs, double budget_ms, Now now) {
    constexpr std::int32_t kRows = 4;
    constexpr std::int32_t kMost = 1024, kLeast = 256;
    const std::int32_t window = context.cache().window();
    const std::int32_t rows = std::min({kRows, costs.widest(), context.capacity()});
    const std::int32_t pages = context.cache().free_pages();
    const std::int64_t room = static_cast<std::int64_t>(pages) * kernels::kPagePositions;
    auto depth = static_cast<std::int32_t>(std::min<std::int64_t>({kMost, context.capacity() - rows, room - rows}));
    if (window > 0) depth = std::min(depth, window);
    const core::SequenceId id =
        depth < kLeast || rows < 2 || costs.verify_ms(1) > budget_ms ? -1 : context.cache().create();
    if (id < 0 || context.cache().reserve(id, depth) != core::Reserve::ok) {
        if (id >= 0) context.cache().drop(id);
        const kernels::ModelShape& shape = context.model().config().shape;
        const double attention = 2.0 * shape.layers * shape.heads * shape.head_dim;
        const double row_ms = costs.widest() > 1 ? std::max(0.0, costs.verify_ms(2) - costs.verify_ms(1)) : 0.0;
        const double ms = row_ms * attention / static_cast<double>(std::max<std::int64_t>(1, multiplications(shape)));
        costs.calibrate_attention(ms, ms);
        return;
    }
    context.cache().commit(id, depth);
    const std::vector<std::int32_t> tokens = timed_tokens(context, rows);
    const auto time = [&](std::int32_t width) {
        double best = 0.0;
        for (int repeat = -1; repeat < 2; ++repeat) {
            const double begin = now();
            context.decode(std::span(tokens).first(static_cast<std::size_t>(width)), 1, id);
            context.wait();
            const double ms = now() - begin;
            context.truncate(depth, id);
            if (repeat >= 0) best = repeat == 0 ? ms : std::min(best, ms);
        }
        return best;
    };
    const double first = std::max(0.0, time(1) - costs.verify_ms(1));
    const double all = std::max(0.0, time(rows) - costs.verify_ms(rows));
    costs.calibrate_attention(first / depth, std::max(0.0, all - first) / (rows - 1) / depth);
    context.cache().drop(id);
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
