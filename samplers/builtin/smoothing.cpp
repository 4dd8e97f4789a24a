// smoothing (quadratic sampling): replaces each logit by a curve of its distance d to the best one:
//     best - factor * ((3 - curve) / 2 * d^2 + (curve - 1) / 2 * |d|^3)
// so that near rivals come nearer and the tail falls away. curve 1 is the parabola alone.
// Source: kalomaze, 2024; text-generation-webui.

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/builtin/switchable.h"

namespace foresay::samplers {
namespace {

struct Smoothing {
    static constexpr Info info{"smoothing", "1", "Draws rivals of the best token nearer to it.", "Apache-2.0"};
    struct Parameters {
        double factor = 0.0;
        double curve = 1.0;
    };
    static auto parameters() {
        return foresay::parameters(real("factor", &Parameters::factor, 0.0, 10.0, "Steepness; 0 is off."),
                                   real("curve", &Parameters::curve, 1.0, 3.0, "1 is a parabola, 3 is cubic."));
    }
    Smoothing(Parameters p, Host)
        : factor_(static_cast<float>(p.factor)),
          square_(static_cast<float>((3.0 - p.curve) / 2.0)),
          cube_(static_cast<float>((p.curve - 1.0) / 2.0)) {}

    void process(const Context&, Candidates& candidates) const {
        if (factor_ == 0.0f) return;
        const float best = candidates[0].logit;
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            const float d = best - candidates[i].logit;
            // Beyond this nothing is ever sampled, and nothing may become infinite.
            candidates.logit(i) = best - std::fmin(factor_ * (square_ * d * d + cube_ * d * d * d), 1e4f);
        }
    }
    float factor_, square_, cube_;
};

}  // namespace

std::shared_ptr<const StageFactory> smoothing_factory() {
    return switchable(&detail::Adapter<Smoothing>::sampler,
                      [](std::span<const ParameterValue> p) { return std::get<double>(p[0]) == 0.0; });
}

}  // namespace foresay::samplers
