#include "speculative/acceptance.h"

#include <algorithm>
#include <cmath>

namespace foresay::speculative {
namespace {

// Counts fade over about 1 / (1 - kDecay) = 200 observations.
constexpr double kDecay = 0.995;
// The common shift of the odds: how far one surprise moves it, and the power of it that each observation keeps.
constexpr double kTiltRate = 0.25;
constexpr double kTiltMemory = 0.95;
// Priors, for a typical pair of models: acceptance is likelier where a lookup agrees.
constexpr double kPriorRate = 0.7;
constexpr double kPriorWeight = 4.0;
constexpr double kViewShift[kViews] = {0.0, 0.2, -0.15};
// Prior chance, by match class, that a lookup proposes the draft model's token.
constexpr double kPriorSame[kMatchClasses] = {0.0, 0.4, 0.7, 0.9};

double blend(double hits, double total, double prior, double weight) {
    return (hits + prior * weight) / (total + weight);
}

// Prior effect of the margin: from -0.175 in the lowest bin to +0.175 in the highest.
double prior_shift(int bin) { return 0.35 * (static_cast<double>(bin) / (kMarginBins - 1) - 0.5); }

std::size_t index(View view) { return static_cast<std::size_t>(view); }

}  // namespace

int match_class(std::int32_t length) { return length <= 0 ? 0 : length == 1 ? 1 : length <= 4 ? 2 : 3; }

Acceptance::Acceptance() {
    for (std::size_t match = 0; match < kMatchClasses; ++match) {
        const double same = kPriorSame[match] * kPriorWeight;
        view_totals_[match] = {match == 0 ? kPriorWeight : 0.0, same, match == 0 ? 0.0 : kPriorWeight - same};
    }
}

int Acceptance::margin_bin(float margin) {
    if (!(margin > 0.03f)) return 0;
    static constexpr float kEdges[kMarginBins - 1] = {0.03f, 0.1f, 0.2f, 0.4f, 0.7f, 1.0f,
                                                      1.5f,  2.2f, 3.2f, 5.0f, 8.0f};
    int bin = 0;
    while (bin < kMarginBins - 1 && margin >= kEdges[bin]) ++bin;
    return bin;
}

double Acceptance::rate(int match, View view, int bin) const {
    const ViewCounts& counts = views_[index(view)];
    const double overall = blend(overall_.hits, overall_.total, kPriorRate, kPriorWeight);
    const double by_view = blend(counts.all.hits, counts.all.total,
                                 std::clamp(overall + kViewShift[index(view)], 0.02, 0.98), kPriorWeight);
    const double shifted = std::clamp(by_view + prior_shift(bin), 0.02, 0.98);
    const Count& b = counts.bins[static_cast<std::size_t>(bin)];
    const double by_bin = blend(b.hits, b.total, shifted, kPriorWeight);
    const Count& c = counts.cells[static_cast<std::size_t>(match)][static_cast<std::size_t>(bin)];
    return tilted(blend(c.hits, c.total, by_bin, 2.0 * kPriorWeight));
}

double Acceptance::expected(int match) const {
    const double overall = blend(overall_.hits, overall_.total, kPriorRate, kPriorWeight);
    const Count& p = classes_[static_cast<std::size_t>(match)];
    return tilted(blend(p.hits, p.total, overall, 2.0 * kPriorWeight));
}

double Acceptance::expected() const { return tilted(blend(overall_.hits, overall_.total, kPriorRate, kPriorWeight)); }

double Acceptance::view_share(int match, View view) const {
    const auto& totals = view_totals_[static_cast<std::size_t>(match)];
    return totals[index(view)] / (totals[0] + totals[1] + totals[2]);
}

double Acceptance::bin_share(View view, int bin) const {
    constexpr double kFlat = 0.5;
    const ViewCounts& counts = views_[index(view)];
    return (counts.bins[static_cast<std::size_t>(bin)].total + kFlat) / (counts.all.total + kFlat * kMarginBins);
}

void Acceptance::relax() { tilt_ = std::pow(tilt_, kTiltMemory); }

void Acceptance::observe(int match, View view, float margin, bool accepted) {
    const double error = (accepted ? 1.0 : 0.0) - given(match, view, margin);
    tilt_ = std::clamp(std::pow(tilt_, kTiltMemory) * std::exp(kTiltRate * error), 0.1, 10.0);
    const std::size_t m = static_cast<std::size_t>(match);
    const std::size_t b = static_cast<std::size_t>(margin_bin(margin));
    ViewCounts& counts = views_[index(view)];
    // A view and its bins decay together, so that bin_share() still sums to 1.
    overall_.decay(kDecay);
    classes_[m].decay(kDecay);
    counts.all.decay(kDecay);
    for (Count& bin : counts.bins) bin.decay(kDecay);
    counts.cells[m][b].decay(kDecay);
    for (double& total : view_totals_[m]) total *= kDecay;
    overall_.add(accepted);
    classes_[m].add(accepted);
    counts.all.add(accepted);
    counts.bins[b].add(accepted);
    counts.cells[m][b].add(accepted);
    view_totals_[m][index(view)] += 1.0;
}

}  // namespace foresay::speculative
