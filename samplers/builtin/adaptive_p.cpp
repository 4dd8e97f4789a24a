// adaptive_p: prefers tokens whose probability is near a target, and moves the target so that the mean probability of
// the sampled tokens approaches it. The last stage of a chain: it replaces the distribution. Source: MrJackSpade and
// ddh0, llama.cpp, 2025.

#include <cmath>
#include <limits>

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/builtin/switchable.h"

namespace foresay::samplers {
namespace {

constexpr double kWidth = 0.3, kPeak = 5.0, kSharpness = 10.0;

struct AdaptiveP {
    static constexpr Info info{"adaptive_p", "1", "Prefers tokens of a certain probability.", "Apache-2.0"};
    struct Parameters {
        double target = 0.5;
        double decay = 0.9;
    };
    static auto parameters() {
        return foresay::parameters(
            real("target", &Parameters::target, -1.0, 1.0, "Probability aimed at; below 0 is off."),
            real("decay", &Parameters::decay, 0.0, 0.99, "How slowly the past is forgotten."));
    }
    // Sums over the sampled tokens, beside those of a past in which all had the target.
    struct State {
        double sum = 0.0;
        double weight = 0.0;
        double past = 1.0;
    };
    AdaptiveP(Parameters p, Host) : p_(p) {}

    void accept(State& state, const Token& token) const {
        if (std::isnan(token.received_log_probability)) return;  // only supposed
        const double probability = kernels::math::exp(token.received_log_probability);
        state.sum = probability + p_.decay * state.sum;
        state.weight = 1.0 + p_.decay * state.weight;
        state.past *= p_.decay;
    }
    void process(const State& state, const Context&, Candidates& candidates) const {
        const double past = state.past / (1.0 - p_.decay);
        const double mean = (state.sum + past * p_.target) / (state.weight + past);
        const double aim = std::fmin(std::fmax(2.0 * p_.target - mean, 0.0), 1.0);
        const std::vector<double>& p = probabilities_of(candidates).p;
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            const double away = std::fabs(p[i] - aim) / kWidth;
            candidates.logit(i) = static_cast<float>(kPeak - kSharpness * away * away / (1.0 + away));
        }
    }
    Parameters p_;
};

}  // namespace

std::shared_ptr<const StageFactory> adaptive_p_factory() {
    return switchable(&detail::Adapter<AdaptiveP>::sampler,
                      [](std::span<const ParameterValue> p) { return std::get<double>(p[0]) < 0.0; });
}

}  // namespace foresay::samplers
