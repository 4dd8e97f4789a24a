// tfs (tail-free sampling): finds where the sorted probabilities stop bending, by their second differences, and drops
// the tail from there.
// Source: T. Phan, "Tail Free Sampling", 2019.

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/plugin_stage.h"

namespace foresay::samplers {
namespace {

struct TailFree {
    static constexpr Info info{"tfs", "1", "Drops the flat tail of the distribution.", "Apache-2.0"};
    struct Parameters {
        double z = 1.0;
    };
    static auto parameters() {
        return foresay::parameters(real("z", &Parameters::z, 0.0, 1.0, "Share of the bend that is kept; 1 is off."));
    }
    TailFree(Parameters p, Host) : z_(p.z) {}

    void process(const Context&, Mask& candidates) const {
        if (z_ >= 1.0 || candidates.size() < 3) return;
        const std::vector<double>& p = probabilities_of(candidates).p;
        const auto bend = [&](std::size_t i) { return std::fabs((p[i] - p[i + 1]) - (p[i + 1] - p[i + 2])); };
        double sum = 0.0;
        for (std::size_t i = 0; i + 2 < p.size(); ++i) sum += bend(i);
        if (!(sum > 0.0)) return;  // all alike
        double reached = 0.0;
        for (std::size_t i = 0; i + 2 < p.size(); ++i) {
            reached += bend(i) / sum;
            if (reached > z_ && i >= 1) return candidates.truncate(i);
        }
    }
    double z_;
};

}  // namespace

std::shared_ptr<const StageFactory> tfs_factory() {
    return make_plugin_factory(&detail::Adapter<TailFree>::sampler, nullptr, "foresay");
}

}  // namespace foresay::samplers
