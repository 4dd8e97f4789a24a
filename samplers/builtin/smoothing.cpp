// smoothing (quadratic sampling): replaces each logit by a curve of its distance d to the best one:
//     best - factor * ((3 - curve) / 2 * d^2 + (curve - 1) / 2 * |d|^3)
// so that near rivals come nearer and the tail falls away. curve 1 is the parabola alone.
// Source: kalomaze, 2024; text-generation-webui.

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> smoothing_factory() {
    StageDescription description{"smoothing",
                                 "Draws rivals of the best token nearer to it.",
                                 {},
                                 {{"factor", ParameterType::real, 0.0, 0.0, 10.0, {}, "Steepness; 0 is off."},
                                  {"curve", ParameterType::real, 1.0, 1.0, 3.0, {}, "1 is a parabola, 3 is cubic."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const double factor = std::get<double>(parameters[0]), curve = std::get<double>(parameters[1]);
        const kernels::SamplingStep step{.kind = kernels::SamplingStepKind::smoothing,
                                         .smoothing = {.factor = static_cast<float>(factor),
                                                       .square = static_cast<float>((3.0 - curve) / 2.0),
                                                       .cube = static_cast<float>((curve - 1.0) / 2.0)}};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, factor == 0.0, false));
    });
}

}  // namespace foresay::samplers
