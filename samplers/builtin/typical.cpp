// typical: keeps the candidates whose surprise is nearest to the expected one, until their probabilities reach p.
// Source: C. Meister et al., "Locally Typical Sampling", 2022.

#include <algorithm>
#include <numeric>

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/builtin/switchable.h"

namespace foresay::samplers {
namespace {

struct Typical {
    static constexpr Info info{"typical", "1", "Keeps tokens about as surprising as expected.", "Apache-2.0"};
    struct Parameters {
        double p = 1.0;
    };
    static auto parameters() {
        return foresay::parameters(real("p", &Parameters::p, 0.0, 1.0, "Probability that is kept; 1 is off."));
    }
    Typical(Parameters p, Host) : p_(p.p) {}

    void process(const Context&, Mask& candidates) const {
        if (p_ >= 1.0) return;
        const Probabilities& all = probabilities_of(candidates);
        static thread_local std::vector<std::uint32_t> order;
        static thread_local std::vector<bool> kept;
        order.resize(candidates.size());
        std::iota(order.begin(), order.end(), 0u);
        const auto oddness = [&](std::uint32_t i) { return std::fabs(-all.log_p[i] - all.entropy); };
        // Not stable_sort(), which allocates.
        std::sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
            const double x = oddness(a), y = oddness(b);
            return x != y ? x < y : a < b;
        });
        kept.assign(candidates.size(), false);
        double reached = 0.0;
        for (const std::uint32_t i : order) {
            kept[i] = true;
            reached += all.p[i];
            if (reached >= p_) break;
        }
        std::size_t at = 0;
        candidates.drop_if([&](Candidate) { return !kept[at++]; });
    }
    double p_;
};

}  // namespace

std::shared_ptr<const StageFactory> typical_factory() {
    return switchable(&detail::Adapter<Typical>::sampler,
                      [](std::span<const ParameterValue> p) { return std::get<double>(p[0]) >= 1.0; });
}

}  // namespace foresay::samplers
