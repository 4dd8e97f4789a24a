// dynatemp (dynamic temperature): a temperature between min and max that follows how unsure the model is: the entropy
// of the candidates, as a share of the largest that so many can have, to the power `exponent`. In place of temperature.
// Source: kalomaze, 2023; llama.cpp.

#include "base/error.h"
#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> dynatemp_factory() {
    StageDescription description{
        "dynatemp",
        "A temperature that grows with the model's doubt.",
        {},
        {{"min", ParameterType::real, 1.0, 0.01, 10.0, {}, "Temperature where the model is sure."},
         {"max", ParameterType::real, 1.0, 0.01, 10.0, {}, "Temperature where it is not."},
         {"exponent", ParameterType::real, 1.0, 0.01, 10.0, {}, "Bends the way between them."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const double min = std::get<double>(parameters[0]), max = std::get<double>(parameters[1]);
        if (min > max) throw Error("sampler 'dynatemp': 'min' is larger than 'max'; set 'max' to at least 'min'");
        const kernels::SamplingStep step{
            .kind = kernels::SamplingStepKind::dynatemp,
            .dynatemp = {.min = min, .max = max, .exponent = static_cast<float>(std::get<double>(parameters[2]))}};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, min == 1.0 && max == 1.0, false));
    });
}

}  // namespace foresay::samplers
