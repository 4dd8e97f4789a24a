// temperature: divides the logits. 0 means no noise: the token is the best candidate that the chain leaves.

#include "samplers/builtin/builtin.h"

namespace foresay::samplers {
namespace {

class Temperature : public FixedStep {
public:
    explicit Temperature(float value)
        : FixedStep({.kind = kernels::SamplingStepKind::temperature, .temperature = value},
                    value == 1.0f || value == 0.0f, true),
          greedy_(value == 0.0f) {}
    bool greedy() const override { return greedy_; }

private:
    bool greedy_;
};

}  // namespace

std::shared_ptr<const StageFactory> temperature_factory() {
    StageDescription description{
        "temperature",
        "Sharpens (below 1) or flattens (above 1) the distribution.",
        {.whole_vocabulary = true},
        {{"value", ParameterType::real, 0.6, 0.0, 100.0, {}, "0 always takes the most likely token."}}};
    return make_factory(std::move(description), [](std::span<const ParameterValue> parameters, const Vocabulary&) {
        // Dividing by less would overflow ordinary logits; such values act like 0 anyway.
        float value = static_cast<float>(std::get<double>(parameters[0]));
        if (value < 1e-6f) value = 0.0f;
        return std::unique_ptr<Stage>(std::make_unique<Temperature>(value));
    });
}

}  // namespace foresay::samplers
