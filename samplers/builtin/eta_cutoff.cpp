// eta_cutoff: drops candidates less likely than eta or than sqrt(eta) * exp(-entropy), whichever is less: the less sure
// the model is, the more may stay.
// Source: J. Hewitt et al., "Truncation Sampling as Language Model Desmoothing", 2022.

#include <algorithm>

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/builtin/switchable.h"

namespace foresay::samplers {
namespace {

struct EtaCutoff {
    static constexpr Info info{"eta_cutoff", "1", "Drops unlikely tokens by the entropy.", "Apache-2.0"};
    struct Parameters {
        double eta = 0.0;
    };
    static auto parameters() {
        return foresay::parameters(real("eta", &Parameters::eta, 0.0, 1.0, "Such as 0.0003; 0 is off."));
    }
    EtaCutoff(Parameters p, Host) : eta_(p.eta) {}

    void process(const Context&, Mask& candidates) const {
        const Probabilities& all = probabilities_of(candidates);
        const double unsure = kernels::math::exp(static_cast<float>(-all.entropy));
        const double least = std::min(eta_, std::sqrt(eta_) * unsure);
        std::size_t kept = 1;
        while (kept < all.p.size() && all.p[kept] >= least) ++kept;
        candidates.truncate(kept);
    }
    double eta_;
};

}  // namespace

std::shared_ptr<const StageFactory> eta_cutoff_factory() {
    return switchable(&detail::Adapter<EtaCutoff>::sampler,
                      [](std::span<const ParameterValue> p) { return std::get<double>(p[0]) == 0.0; });
}

}  // namespace foresay::samplers
