// tfs (tail-free sampling): the second differences of the sorted probabilities tell where they stop bending. Keeps the
// candidates until their shares of all bending exceed z, and one more, because a second difference belongs to the
// middle one of three. Source: T. Bricken, "Tail Free Sampling", 2019; ExLlamaV2. (llama.cpp's, removed in 2024, kept
// one candidate less.)

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/probabilities.h"
#include "samplers/builtin/switchable.h"

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
        std::size_t kept = 0;
        while (kept + 2 < p.size() && (reached += bend(kept) / sum) <= z_) ++kept;
        candidates.truncate(kept + 1);
    }
    double z_;
};

}  // namespace

std::shared_ptr<const StageFactory> tfs_factory() {
    return switchable(&detail::Adapter<TailFree>::sampler,
                      [](std::span<const ParameterValue> p) { return std::get<double>(p[0]) >= 1.0; });
}

}  // namespace foresay::samplers
