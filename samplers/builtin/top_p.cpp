// top_p (nucleus): keeps the fewest best candidates whose probabilities reach p, at least one. 1 switches it off.
// Probabilities are those among the candidates that reach the stage.
// Source: A. Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019.

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> top_p_factory() {
    StageDescription description{
        "top_p",
        "Keeps the most likely tokens that together reach probability p.",
        {.masks_only = true},
        {{"p", ParameterType::real, 0.95, 0.0, 1.0, {}, "Probability that the kept tokens reach; 1 keeps all."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const double p = std::get<double>(parameters[0]);
        kernels::SamplingStep step{.kind = kernels::SamplingStepKind::top_p, .top_p = static_cast<float>(p)};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, p >= 1.0, false));
    });
}

}  // namespace foresay::samplers
