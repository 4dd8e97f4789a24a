#include "engine/unfinished.h"

#include <algorithm>

namespace foresay::engine {

std::string unfinished_stage(const Engine& engine, const samplers::ChainSpec& spec,
                             std::span<const std::int32_t> answer) {
    static const auto grammar = samplers::find_builtin("grammar");
    const auto ends = engine.tokenizer().end_of_text_ids();
    if (ends.empty()) return {};
    for (const samplers::StageSpec& stage : spec) {
        if (stage.factory ? stage.factory != grammar : stage.name != grammar->description().name) continue;
        const auto alone = engine.make_chain({stage});
        alone->begin(0, 0, answer, 0, answer.size());
        samplers::PlanBuffer buffer;
        // Without a step the stage is switched off; with a failure, the answer has ended otherwise.
        if (alone->compile(buffer) != nullptr || buffer.plan.step_count == 0) continue;
        const std::span<const std::uint32_t> bits = buffer.plan.steps[0].bits;
        const auto may_come = [&](std::int32_t id) {
            return (bits[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0;
        };
        if (std::ranges::none_of(ends, may_come)) return stage.name;
    }
    return {};
}

}  // namespace foresay::engine
