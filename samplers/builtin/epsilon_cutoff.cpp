// epsilon_cutoff: drops candidates less likely than epsilon, but never the best.
// Source: J. Hewitt et al., "Truncation Sampling as Language Model Desmoothing", 2022.

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/builtin/switchable.h"

namespace foresay::samplers {
namespace {

struct EpsilonCutoff {
    static constexpr Info info{"epsilon_cutoff", "1", "Drops tokens less likely than epsilon.", "Apache-2.0"};
    struct Parameters {
        double epsilon = 0.0;
    };
    static auto parameters() {
        return foresay::parameters(
            real("epsilon", &Parameters::epsilon, 0.0, 1.0, "Least probability, such as 0.0003; 0 is off."));
    }
    EpsilonCutoff(Parameters p, Host) : epsilon_(p.epsilon) {}

    void process(const Context&, Mask& candidates) const {
        const std::vector<double>& p = probabilities_of(candidates).p;
        std::size_t kept = 1;
        while (kept < p.size() && p[kept] >= epsilon_) ++kept;
        candidates.truncate(kept);
    }
    double epsilon_;
};

}  // namespace

std::shared_ptr<const StageFactory> epsilon_cutoff_factory() {
    return switchable(&detail::Adapter<EpsilonCutoff>::sampler,
                      [](std::span<const ParameterValue> p) { return std::get<double>(p[0]) == 0.0; });
}

}  // namespace foresay::samplers
