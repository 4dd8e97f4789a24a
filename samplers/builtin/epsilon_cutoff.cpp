// epsilon_cutoff: drops candidates less likely than epsilon, but never the best.
// Source: J. Hewitt et al., "Truncation Sampling as Language Model Desmoothing", 2022.

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> epsilon_cutoff_factory() {
    StageDescription description{
        "epsilon_cutoff",
        "Drops tokens less likely than epsilon.",
        {.masks_only = true},
        {{"epsilon", ParameterType::real, 0.0, 0.0, 1.0, {}, "Least probability, such as 0.0003; 0 is off."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const double epsilon = std::get<double>(parameters[0]);
        const kernels::SamplingStep step{.kind = kernels::SamplingStepKind::epsilon_cutoff, .limit = epsilon};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, epsilon == 0.0, false));
    });
}

}  // namespace foresay::samplers
