// typical: keeps the candidates whose surprise is nearest to the expected one, until their probabilities reach p.
// Source: C. Meister et al., "Locally Typical Sampling", 2022.

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> typical_factory() {
    StageDescription description{
        "typical",
        "Keeps tokens about as surprising as expected.",
        {.masks_only = true},
        {{"p", ParameterType::real, 1.0, 0.0, 1.0, {}, "Probability that is kept; 1 is off."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const double p = std::get<double>(parameters[0]);
        const kernels::SamplingStep step{.kind = kernels::SamplingStepKind::typical, .limit = p};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, p >= 1.0, false));
    });
}

}  // namespace foresay::samplers
