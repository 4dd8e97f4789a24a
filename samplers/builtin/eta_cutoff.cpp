// eta_cutoff: drops candidates less likely than eta or than sqrt(eta) * exp(-entropy), whichever is less: the less sure
// the model is, the more may stay.
// Source: J. Hewitt et al., "Truncation Sampling as Language Model Desmoothing", 2022.

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> eta_cutoff_factory() {
    StageDescription description{"eta_cutoff",
                                 "Drops unlikely tokens by the entropy.",
                                 {.masks_only = true},
                                 {{"eta", ParameterType::real, 0.0, 0.0, 1.0, {}, "Such as 0.0003; 0 is off."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const double eta = std::get<double>(parameters[0]);
        const kernels::SamplingStep step{.kind = kernels::SamplingStepKind::eta_cutoff, .limit = eta};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, eta == 0.0, false));
    });
}

}  // namespace foresay::samplers
