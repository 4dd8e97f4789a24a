// A trace runs the stages as a decision does, with one difference: a test is made of every candidate when its turn
// comes. A decision asks later, and only about tokens that can be sampled, which changes no token.
#include "samplers/chain_trace.h"

#include <algorithm>
#include <limits>

#include "kernels/noise.h"
#include "kernels/sampling_steps.h"
#include "samplers/chain_stages.h"

namespace foresay::samplers {

void ChainStages::note_column(std::string_view stage, bool best_only) {
    constexpr float kDropped = -std::numeric_limits<float>::infinity();
    ChainTrace::Column& column = trace_->columns.emplace_back();
    column.stage = stage;
    column.best_only = best_only;
    column.logits.assign(static_cast<std::size_t>(vocabulary_->size()), kDropped);
    if (scratch_.whole()) {
        const std::span<const float> row = scratch_.row();
        std::ranges::transform(row, column.logits.begin(),
                               [](float logit) { return kernels::is_candidate(logit) ? logit : kDropped; });
        return;
    }
    const kernels::Candidates list = scratch_.list();
    for (std::int32_t i = 0; i < list.count; ++i) {
        if (kernels::is_candidate(list.logits[i]))
            column.logits[static_cast<std::size_t>(list.ids[i])] = list.logits[i];
    }
}

bool ChainStages::note_stage(const Entry& entry, std::int64_t failures_before) {
    if (!test_all()) return false;
    note_column(entry.name, false);
    if (entry.report.failures != failures_before) trace_->columns.back().failure = entry.report.last_failure;
    return true;
}

ChainTrace ChainStages::trace(std::span<float> logits) {
    ChainTrace trace;
    trace_ = &trace;
    const kernels::SampledToken sampled = run(logits);
    trace_ = nullptr;
    trace.token = sampled.token;
    trace.margin = sampled.margin;
    if (failed_) {
        trace.token = -1;
        trace.columns.push_back({failure_.stage, {}, failure_.message, false});
    }
    if (!greedy_) {
        trace.noise.resize(static_cast<std::size_t>(vocabulary_->size()));
        for (std::size_t id = 0; id < trace.noise.size(); ++id)
            trace.noise[id] = kernels::gumbel(key(), static_cast<std::int32_t>(id));
    }
    return trace;
}

}  // namespace foresay::samplers
