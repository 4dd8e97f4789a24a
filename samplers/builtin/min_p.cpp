// min_p: keeps candidates whose probability is at least p times that of the best. 0 switches it off.
// Source: M. Nguyen et al., "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", 2024.

#include "kernels/math.h"
#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> min_p_factory() {
    StageDescription description{
        "min_p",
        "Keeps tokens at least p times as likely as the most likely one.",
        {.masks_only = true},
        {{"p", ParameterType::real, 0.05, 0.0, 1.0, {}, "Least share of the best token's probability; 0 keeps all."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const float p = static_cast<float>(std::get<double>(parameters[0]));
        kernels::SamplingStep step{.kind = kernels::SamplingStepKind::min_p, .min_p_log = kernels::math::log(p)};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, p == 0.0f, false));
    });
}

}  // namespace foresay::samplers
