// top_n_sigma: keeps candidates within n standard deviations of the best logit, where the deviation is that of all
// logits of the row: noise of the tail does not grow with the temperature.
// Cost:   sees the whole row: put it before the stages that cut, and expect a millisecond or two for 128,256 tokens.
// Source: C. Tang et al., "Top-nσ: Not All Logits Are You Need", 2024.

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/builtin/switchable.h"

namespace foresay::samplers {
namespace {

struct TopNSigma {
    static constexpr Info info{"top_n_sigma", "1", "Keeps tokens within n deviations of the best logit.", "Apache-2.0"};
    struct Parameters {
        double n = 0.0;
    };
    static auto parameters() {
        return foresay::parameters(real("n", &Parameters::n, 0.0, 100.0, "Standard deviations; 0 is off."));
    }
    TopNSigma(Parameters p, Host) : n_(p.n) {}

    void process(const Context&, WholeMask& candidates) const {
        if (n_ <= 0.0) return;
        const auto count = static_cast<double>(candidates.size());
        double sum = 0.0, squares = 0.0;
        for (std::size_t i = 0; i < candidates.size(); ++i) sum += candidates[i].logit;
        const double mean = sum / count;
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            const double away = candidates[i].logit - mean;
            squares += away * away;
        }
        const double least = candidates[0].logit - n_ * std::sqrt(squares / count);
        std::size_t kept = 1;
        while (kept < candidates.size() && candidates[kept].logit >= least) ++kept;
        candidates.truncate(kept);
    }
    double n_;
};

}  // namespace

std::shared_ptr<const StageFactory> top_n_sigma_factory() {
    return switchable(&detail::Adapter<TopNSigma>::sampler,
                      [](std::span<const ParameterValue> p) { return std::get<double>(p[0]) == 0.0; });
}

}  // namespace foresay::samplers
