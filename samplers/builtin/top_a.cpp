// top_a: keeps candidates at least a * (the best one's probability) squared as likely: strict where the model is sure,
// generous where it is not.
// Source: BlinkDL's RWKV-LM, 2022; KoboldAI.

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> top_a_factory() {
    StageDescription description{"top_a",
                                 "Keeps tokens by the square of the best one's probability.",
                                 {.masks_only = true},
                                 {{"a", ParameterType::real, 0.0, 0.0, 1.0, {}, "Factor of the square; 0 is off."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const double a = std::get<double>(parameters[0]);
        const kernels::SamplingStep step{.kind = kernels::SamplingStepKind::top_a, .limit = a};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, a == 0.0, false));
    });
}

}  // namespace foresay::samplers
