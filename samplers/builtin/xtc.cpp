// xtc ("exclude top choices"): with the given probability, drops all candidates at least as likely as `threshold`
// except the least likely of them. The coin is keyed: it depends on seed, branch and index alone.
// Source: P. E. Weidmann, text-generation-webui, 2024.

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> xtc_factory() {
    StageDescription description{
        "xtc",
        "Now and then drops all likely tokens but the least likely of them.",
        {.randomised = true, .masks_only = true},
        {{"probability", ParameterType::real, 0.0, 0.0, 1.0, {}, "How often it acts; 0 is never."},
         {"threshold",
          ParameterType::real,
          0.1,
          0.0,
          1.0,
          {},
          "Probability of a likely token; above 0.5 it never acts."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const double probability = std::get<double>(parameters[0]);
        const double threshold = std::get<double>(parameters[1]);
        // The chain fills in the stream of keyed numbers.
        kernels::SamplingStep step{
            .kind = kernels::SamplingStepKind::xtc,
            .xtc = {.probability = static_cast<float>(probability), .threshold = static_cast<float>(threshold)}};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, probability == 0.0 || threshold > 0.5, false));
    });
}

}  // namespace foresay::samplers
