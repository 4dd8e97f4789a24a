// top_k: keeps the k best candidates. 0 switches it off. Ties at the border go to the lowest ids.

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> top_k_factory() {
    StageDescription description{
        "top_k",
        "Keeps the k most likely tokens.",
        {.masks_only = true},
        {{"k", ParameterType::integer, std::int64_t{40}, 0.0, 1e6, {}, "How many tokens stay; 0 keeps all."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const std::int64_t k = std::get<std::int64_t>(parameters[0]);
        kernels::SamplingStep step{.kind = kernels::SamplingStepKind::top_k, .top_k = static_cast<std::uint32_t>(k)};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, k == 0, false));
    });
}

}  // namespace foresay::samplers
