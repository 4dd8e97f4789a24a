#include "engine/unfinished.h"

#include <algorithm>

#include "samplers/grammar_stages.h"

namespace foresay::engine {

namespace {

std::string beginning(const std::string& unfinished) {
    return "the answer ends before the grammar of sampler '" + unfinished + "' does: ";
}

}  // namespace

Unfinished::Unfinished(const Engine& engine, const samplers::ChainSpec& spec) : engine_(engine) {
    if (engine.tokenizer().end_of_text_ids().empty()) return;
    for (const samplers::StageSpec& stage : samplers::grammar_stages(spec))
        alone_.emplace_back(stage.name, engine.make_chain({stage}));
}

std::string Unfinished::stage(std::span<const std::int32_t> answer) const {
    for (const auto& [name, alone] : alone_) {
        alone->begin(0, 0, answer, 0, answer.size());
        samplers::PlanBuffer buffer;
        // With a failure, the answer has ended otherwise.
        if (alone->compile(buffer) != nullptr || buffer.plan.step_count == 0) continue;
        const std::span<const std::uint32_t> bits = buffer.plan.steps[0].bits;
        const auto may_come = [&](std::int32_t id) {
            return (bits[static_cast<std::size_t>(id) / 32] >> (id % 32) & 1) != 0;
        };
        if (std::ranges::none_of(engine_.tokenizer().end_of_text_ids(), may_come)) return name;
    }
    return {};
}

std::string unfinished_stage(const Engine& engine, const samplers::ChainSpec& spec,
                             std::span<const std::int32_t> answer) {
    return Unfinished(engine, spec).stage(answer);
}

std::string unfinished_text(const std::string& unfinished, std::size_t tokens, std::int64_t max_tokens,
                            std::string_view raised_by) {
    if (unfinished.empty()) return {};
    if (max_tokens > 0 && static_cast<std::int64_t>(tokens) >= max_tokens)
        return beginning(unfinished) + "it has the " + std::to_string(max_tokens) + " tokens that it may have; " +
               std::string(raised_by) + " allows more";
    return beginning(unfinished) + "the context is full; target.context makes it longer";
}

std::string unfinished_by_time(const std::string& unfinished, std::string_view raised_by) {
    if (unfinished.empty()) return {};
    return beginning(unfinished) + "it has taken the time that it may take; " + std::string(raised_by) + " allows more";
}

}  // namespace foresay::engine
