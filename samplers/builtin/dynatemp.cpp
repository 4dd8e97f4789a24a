// dynatemp (dynamic temperature): a temperature between min and max that follows how unsure the model is: the entropy
// of the candidates, as a share of the largest that so many can have, to the power `exponent`. In place of temperature.
// Source: kalomaze, 2023; llama.cpp.

#include <algorithm>
#include <stdexcept>

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/builtin/switchable.h"

namespace foresay::samplers {
namespace {

struct DynamicTemperature {
    static constexpr Info info{"dynatemp", "1", "A temperature that grows with the model's doubt.", "Apache-2.0"};
    struct Parameters {
        double min = 1.0;
        double max = 1.0;
        double exponent = 1.0;
    };
    static auto parameters() {
        return foresay::parameters(real("min", &Parameters::min, 0.01, 10.0, "Temperature where the model is sure."),
                                   real("max", &Parameters::max, 0.01, 10.0, "Temperature where it is not."),
                                   real("exponent", &Parameters::exponent, 0.01, 10.0, "Bends the way between them."));
    }
    DynamicTemperature(Parameters p, Host) : p_(p) {
        if (p.min > p.max) throw std::runtime_error("'min' is larger than 'max'");
    }

    void process(const Context&, Candidates& candidates) const {
        if (candidates.size() < 2) return;
        const double entropy = probabilities_of(candidates).entropy;
        const double most = kernels::math::log(static_cast<float>(candidates.size()));
        const auto doubt = static_cast<float>(std::max(entropy, 0.0) / most);
        const auto temperature = static_cast<float>(
            p_.min + (p_.max - p_.min) * static_cast<double>(power(doubt, static_cast<float>(p_.exponent))));
        for (std::size_t i = 0; i < candidates.size(); ++i) candidates.logit(i) /= temperature;
    }
    Parameters p_;
};

}  // namespace

std::shared_ptr<const StageFactory> dynatemp_factory() {
    return switchable(&detail::Adapter<DynamicTemperature>::sampler, [](std::span<const ParameterValue> p) {
        return std::get<double>(p[0]) == 1.0 && std::get<double>(p[1]) == 1.0;
    });
}

}  // namespace foresay::samplers
