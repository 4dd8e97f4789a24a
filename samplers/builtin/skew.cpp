// skew: raises the cumulated probabilities, best first, to the power exp(skew). Above 0 less likely tokens gain, below
// 0 the best ones. Source: turboderp, ExLlamaV2, 2024.

#include <limits>

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/builtin/switchable.h"

namespace foresay::samplers {
namespace {

struct Skew {
    static constexpr Info info{"skew", "1", "Moves probability to less likely tokens, or away.", "Apache-2.0"};
    struct Parameters {
        double skew = 0.0;
    };
    static auto parameters() {
        return foresay::parameters(real("skew", &Parameters::skew, -5.0, 5.0, "Above 0 flattens; 0 is off."));
    }
    Skew(Parameters p, Host) : off_(p.skew == 0.0), power_(kernels::math::exp(static_cast<float>(p.skew))) {}

    void process(const Context&, Candidates& candidates) const {
        if (off_) return;
        const std::vector<double>& p = probabilities_of(candidates).p;
        double sum = 0.0;
        float before = 0.0f;
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            sum += p[i];
            const float reached =
                i + 1 < candidates.size() ? power(static_cast<float>(std::fmin(sum, 1.0)), power_) : 1.0f;
            const float own = reached - before;
            candidates.logit(i) = own > 0.0f ? kernels::math::log(own) : -std::numeric_limits<float>::infinity();
            before = std::fmax(reached, before);
        }
    }
    bool off_;
    float power_;
};

}  // namespace

std::shared_ptr<const StageFactory> skew_factory() {
    return switchable(&detail::Adapter<Skew>::sampler,
                      [](std::span<const ParameterValue> p) { return std::get<double>(p[0]) == 0.0; });
}

}  // namespace foresay::samplers
