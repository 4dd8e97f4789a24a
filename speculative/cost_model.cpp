#include "speculative/cost_model.h"

#include <algorithm>

namespace foresay::speculative {
namespace {

// How far one measurement moves the pace, and the shape of its width.
constexpr double kBlend = 0.05;
// How fast widths just above the one in use become cheaper: they are tried again after a few hundred rounds.
constexpr double kDoubt = 0.004;
// Before widths are measured: each further row costs this share of a plain step.
constexpr double kRowPrior = 0.08;

}  // namespace

void CostModel::calibrate(std::int32_t rows, double ms) {
    if (rows < 1 || rows > widest() || !(ms > 0.0)) return;
    shape_[static_cast<std::size_t>(rows)] = ms / pace_;
    known_[static_cast<std::size_t>(rows)] = 1;
    interpolate();
}

void CostModel::observe(std::int32_t rows, double ms) {
    if (rows < 1 || rows > widest() || !(ms > 0.0)) return;
    const std::size_t w = static_cast<std::size_t>(rows);
    if (!calibrated()) {
        calibrate(rows, ms);
        return;
    }
    if (known_[w] == 0) {
        shape_[w] = table_[w];
        known_[w] = 1;
    }
    // Clamped, because the time of an interrupted forward says little.
    const double ratio = std::clamp(ms / verify_ms(rows), 0.5, 2.0);
    const double step = kBlend * (ratio - 1.0);
    pace_ *= 1.0 + step;
    shape_[w] = table_[w] * (1.0 + step);
    for (std::size_t i = w + 1; i < shape_.size() && i <= w + 2; ++i) {
        if (known_[i]) shape_[i] -= kDoubt * std::max(0.0, shape_[i] - shape_[w]);
    }
    interpolate();
}

// Fills the widths between, below and beyond the measured ones, then applies the bounds that the header names.
void CostModel::interpolate() {
    std::size_t last = 0;
    for (std::size_t w = 1; w < shape_.size(); ++w) {
        if (!known_[w]) continue;
        if (last == 0) {
            for (std::size_t i = 1; i < w; ++i)
                shape_[i] = shape_[w] * (1.0 - kRowPrior * static_cast<double>(w - i) / 8.0);
        } else {
            const double slope = (shape_[w] - shape_[last]) / static_cast<double>(w - last);
            for (std::size_t i = last + 1; i < w; ++i) shape_[i] = shape_[last] + slope * static_cast<double>(i - last);
        }
        last = w;
    }
    if (last == 0) return;
    std::size_t before = last;
    while (before > 1 && !known_[--before]) {
    }
    const double slope = known_[before] && before < last
                             ? std::max(0.0, (shape_[last] - shape_[before]) / static_cast<double>(last - before))
                             : shape_[last] * kRowPrior;
    for (std::size_t i = last + 1; i < shape_.size(); ++i)
        shape_[i] = shape_[last] + slope * static_cast<double>(i - last);

    table_ = shape_;
    for (std::size_t w = table_.size() - 1; w-- > 1;) table_[w] = std::min(table_[w], table_[w + 1]);
    for (std::size_t w = 2; w < table_.size(); ++w) table_[w] = std::min(table_[w], table_[w - 1] + table_[1]);
}

}  // namespace foresay::speculative
