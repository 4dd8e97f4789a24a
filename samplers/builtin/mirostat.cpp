// mirostat (version 2): drops candidates whose surprise exceeds a limit mu, and moves mu after each token so that the
// mean surprise approaches tau. Written against the plugin SDK, as a plugin would be.
//
// Surprise is measured in the distribution that the token is sampled from: put mirostat last, after temperature.
// Source: S. Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity", 2020.

#include <algorithm>
#include <limits>

#include "kernels/sampling_steps.h"
#include "samplers/builtin/builtin.h"
#include "samplers/plugin_stage.h"
#include "samplers/sdk/sampler.hpp"

namespace foresay::samplers {
namespace {

constexpr float kBitsPerNat = 1.44269504f;

struct Mirostat {
    static constexpr Info info{"mirostat", "2", "Keeps the surprise of the text near a target.", "Apache-2.0"};
    struct Parameters {
        double tau = 5.0;
        double eta = 0.1;
    };
    static auto parameters() {
        return foresay::parameters(real("tau", &Parameters::tau, 0.0, 100.0, "Surprise aimed at, in bits per token."),
                                   real("eta", &Parameters::eta, 0.0, 1.0, "How fast the limit follows."));
    }
    // The limit is 2 tau + offset, so that a new state needs no parameters.
    struct State {
        float offset = 0.0f;
    };

    Mirostat(Parameters p, Host) : tau_(static_cast<float>(p.tau)), eta_(static_cast<float>(p.eta)) {}

    // Only drawn tokens have a probability.
    void accept(State& state, const Token& token) const {
        if (!(token.log_probability > -std::numeric_limits<float>::infinity())) return;
        state.offset -= eta_ * (-token.log_probability * kBitsPerNat - tau_);
    }

    void process(const State& state, const Context&, Mask& candidates) const {
        std::uint64_t sum = 0;
        const float best = candidates[0].logit;
        for (std::size_t i = 0; i < candidates.size(); ++i) sum += kernels::fixed_weight(candidates[i].logit, best);
        const float log_sum = kernels::log_of_fixed(sum);
        const float mu = 2.0f * tau_ + state.offset;
        std::size_t kept = 1;
        while (kept < candidates.size() && (best + log_sum - candidates[kept].logit) * kBitsPerNat <= mu) ++kept;
        candidates.truncate(kept);
    }

    float tau_;
    float eta_;
};

}  // namespace

std::shared_ptr<const StageFactory> mirostat_factory() {
    return make_plugin_factory(&detail::Adapter<Mirostat>::sampler, nullptr, "foresay");
}

}  // namespace foresay::samplers
