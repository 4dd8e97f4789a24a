// top_n_sigma: keeps candidates within n standard deviations of the best logit, where the deviation is that of all
// logits of the row: noise of the tail does not grow with the temperature. Put it before the stages that cut.
// Source: C. Tang et al., "Top-nσ: Not All Logits Are You Need", 2024.

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> top_n_sigma_factory() {
    StageDescription description{"top_n_sigma",
                                 "Keeps tokens within n deviations of the best logit.",
                                 {.masks_only = true, .whole_vocabulary = true},
                                 {{"n", ParameterType::real, 0.0, 0.0, 100.0, {}, "Standard deviations; 0 is off."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const double n = std::get<double>(parameters[0]);
        const kernels::SamplingStep step{.kind = kernels::SamplingStepKind::top_n_sigma, .limit = n};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, n == 0.0, true));
    });
}

}  // namespace foresay::samplers
