// top_a: keeps candidates at least a * (the best one's probability) squared as likely: strict where the model is sure,
// generous where it is not.
// Source: BlinkDL's RWKV-LM, 2022; KoboldAI.

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/builtin/switchable.h"

namespace foresay::samplers {
namespace {

struct TopA {
    static constexpr Info info{"top_a", "1", "Keeps tokens by the square of the best one's probability.", "Apache-2.0"};
    struct Parameters {
        double a = 0.0;
    };
    static auto parameters() {
        return foresay::parameters(real("a", &Parameters::a, 0.0, 1.0, "Factor of the square; 0 is off."));
    }
    TopA(Parameters p, Host) : a_(p.a) {}

    void process(const Context&, Mask& candidates) const {
        const Probabilities& all = probabilities_of(candidates);
        const double least = a_ * all.p[0] * all.p[0];
        std::size_t kept = 1;
        while (kept < candidates.size() && all.p[kept] >= least) ++kept;
        candidates.truncate(kept);
    }
    double a_;
};

}  // namespace

std::shared_ptr<const StageFactory> top_a_factory() {
    return switchable(&detail::Adapter<TopA>::sampler,
                      [](std::span<const ParameterValue> p) { return std::get<double>(p[0]) == 0.0; });
}

}  // namespace foresay::samplers
