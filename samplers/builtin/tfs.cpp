// tfs (tail-free sampling): the second differences of the sorted probabilities tell where they stop bending. Keeps the
// candidates until their shares of all bending exceed z, and one more, because a second difference belongs to the
// middle one of three. Source: T. Bricken, "Tail Free Sampling", 2019; ExLlamaV2. (llama.cpp's, removed in 2024, kept
// one candidate less.)

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> tfs_factory() {
    StageDescription description{
        "tfs",
        "Drops the flat tail of the distribution.",
        {.masks_only = true},
        {{"z", ParameterType::real, 1.0, 0.0, 1.0, {}, "Share of the bend that is kept; 1 is off."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        const double z = std::get<double>(parameters[0]);
        const kernels::SamplingStep step{.kind = kernels::SamplingStepKind::tfs, .limit = z};
        return std::unique_ptr<Stage>(std::make_unique<FixedStep>(step, z >= 1.0, false));
    });
}

}  // namespace foresay::samplers
