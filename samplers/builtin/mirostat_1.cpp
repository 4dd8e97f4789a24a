// mirostat_1 (version 1): estimates how steeply the probabilities fall (Zipf's exponent s, from the best `m`), keeps
// the k best whose expected surprise is mu, and moves mu after each token so that the mean surprise approaches tau.
// Source: S. Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity", 2020.

#include <algorithm>
#include <cmath>
#include <limits>

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/plugin_stage.h"

namespace foresay::samplers {
namespace {

constexpr double kBitsPerNat = 1.4426950408889634;
constexpr float kNatsPerBit = 0.69314718f;

struct Mirostat1 {
    static constexpr Info info{"mirostat_1", "1", "Keeps the surprise near a target, version 1.", "Apache-2.0"};
    struct Parameters {
        double tau = 5.0;
        double eta = 0.1;
        std::int64_t m = 100;
    };
    static auto parameters() {
        return foresay::parameters(real("tau", &Parameters::tau, 0.0, 100.0, "Surprise aimed at, in bits per token."),
                                   real("eta", &Parameters::eta, 0.0, 1.0, "How fast the limit follows."),
                                   integer("m", &Parameters::m, 2, 512, "How many of the best show the slope."));
    }
    struct State {
        double offset = 0.0;  // mu is 2 tau + offset
    };
    Mirostat1(Parameters p, Host host) : p_(p), vocabulary_(static_cast<float>(host.vocabulary_size())) {}

    void accept(State& state, const Token& token) const {
        if (!(token.log_probability > -std::numeric_limits<float>::infinity())) return;  // supposed, or gone
        state.offset -= p_.eta * (-token.log_probability * kBitsPerNat - p_.tau);
    }
    void process(const State& state, const Context&, Mask& candidates) const {
        const std::vector<double>& log_p = probabilities_of(candidates).log_p;
        const std::size_t best = std::min(candidates.size(), static_cast<std::size_t>(p_.m));
        double tb = 0.0, tt = 0.0;
        for (std::size_t i = 0; i + 1 < best; ++i) {
            const double t = kernels::math::log(static_cast<float>(i + 2) / static_cast<float>(i + 1));
            tb += t * (log_p[i] - log_p[i + 1]);
            tt += t * t;
        }
        const auto s = static_cast<float>(tt > 0.0 ? tb / tt : 0.0);
        const float mu = static_cast<float>(2.0 * p_.tau + state.offset);
        const float epsilon = s - 1.0f;
        if (epsilon == 0.0f) return;  // the formula divides 0 by 0
        // The k whose expected surprise is mu; no bound where the formula has none.
        const float k = power(epsilon * kernels::math::exp(kNatsPerBit * mu) / (1.0f - power(vocabulary_, -epsilon)),
                              1.0f / std::max(s, 1e-6f));
        if (!(k < static_cast<float>(candidates.size()))) return;
        candidates.truncate(std::max<std::size_t>(1, static_cast<std::size_t>(k)));
    }
    Parameters p_;
    float vocabulary_;
};

}  // namespace

std::shared_ptr<const StageFactory> mirostat_1_factory() {
    return make_plugin_factory(&detail::Adapter<Mirostat1>::sampler, nullptr, "foresay");
}

}  // namespace foresay::samplers
