#include "speculative/acceptance.h"

#include <algorithm>
#include <cmath>

namespace foresay::speculative {
namespace {

// Rates fade over some hundred observations of the same kind.
constexpr double kDecay = 0.995;
// The common shift: how far one surprise moves the odds, and how fast that is forgotten.
constexpr double kTiltRate = 0.25;
constexpr double kTiltMemory = 0.95;
// Before anything is known: a decent pair, surer where the margin is larger.
constexpr double kPriorRate = 0.7;
constexpr double kPriorWeight = 4.0;

double blend(double hits, double total, double prior, double weight) {
    return (hits + prior * weight) / (total + weight);
}

// What margins mean before they have been observed.
double prior_shift(int bin) { return 0.35 * (static_cast<double>(bin) / (kMarginBins - 1) - 0.5); }

}  // namespace

int Acceptance::position_class(std::int32_t position) {
    return position <= 1 ? 0 : position == 2 ? 1 : position <= 4 ? 2 : 3;
}

int Acceptance::margin_bin(float margin) {
    if (!(margin > 0.03f)) return 0;
    static constexpr float kEdges[kMarginBins - 1] = {0.03f, 0.1f, 0.2f, 0.4f, 0.7f, 1.0f,
                                                      1.5f,  2.2f, 3.2f, 5.0f, 8.0f};
    int bin = 0;
    while (bin < kMarginBins - 1 && margin >= kEdges[bin]) ++bin;
    return bin;
}

double Acceptance::rate(int position_class, int bin) const {
    const double overall = blend(overall_.hits, overall_.total, kPriorRate, kPriorWeight);
    const double shifted = std::clamp(overall + prior_shift(bin), 0.02, 0.98);
    const Count& b = bins_[static_cast<std::size_t>(bin)];
    const double by_bin = blend(b.hits, b.total, shifted, kPriorWeight);
    const Count& c = cells_[static_cast<std::size_t>(position_class)][static_cast<std::size_t>(bin)];
    return tilted(blend(c.hits, c.total, by_bin, 2.0 * kPriorWeight));
}

double Acceptance::expected(std::int32_t position) const {
    const double overall = blend(overall_.hits, overall_.total, kPriorRate, kPriorWeight);
    const Count& p = positions_[static_cast<std::size_t>(position_class(position))];
    return tilted(blend(p.hits, p.total, overall, 2.0 * kPriorWeight));
}

double Acceptance::bin_share(int bin) const {
    constexpr double kFlat = 0.5;
    const double total = overall_.total + kFlat * kMarginBins;
    return (bins_[static_cast<std::size_t>(bin)].total + kFlat) / total;
}

void Acceptance::relax() { tilt_ = std::pow(tilt_, kTiltMemory); }

void Acceptance::observe(std::int32_t position, float margin, bool accepted) {
    const double error = (accepted ? 1.0 : 0.0) - given_margin(position, margin);
    tilt_ = std::clamp(std::pow(tilt_, kTiltMemory) * std::exp(kTiltRate * error), 0.1, 10.0);
    const std::size_t p = static_cast<std::size_t>(position_class(position));
    const std::size_t b = static_cast<std::size_t>(margin_bin(margin));
    // Overall and bins decay together, so that shares stay shares.
    overall_.decay(kDecay);
    for (Count& bin : bins_) bin.decay(kDecay);
    positions_[p].decay(kDecay);
    cells_[p][b].decay(kDecay);
    overall_.add(accepted);
    positions_[p].add(accepted);
    bins_[b].add(accepted);
    cells_[p][b].add(accepted);
}

}  // namespace foresay::speculative
