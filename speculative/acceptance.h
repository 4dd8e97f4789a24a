// speculative/acceptance.h: how likely a drafted token is to be the target's, learnt while generating.
//
// Layout:   counts per position class of the run and per bin of the drafter's margin, decaying, so that they follow the
//           text. Thin cells lean on the margin's bin over all positions, thin bins on the overall rate. A common
//           shift of the odds follows the last few rounds: texts turn from easy to hard within a line.
// Threads:  one caller at a time.
// Cost:     a few additions per drafted token; no allocation.
#pragma once

#include <array>
#include <cstdint>

namespace foresay::speculative {

inline constexpr int kMarginBins = 12;

class Acceptance {
public:
    // P(the `position`-th token of a run is accepted | the ones before it were, its margin).
    double given_margin(std::int32_t position, float margin) const {
        return rate(position_class(position), margin_bin(margin));
    }
    // The same before the margin is known.
    double expected(std::int32_t position) const;
    // How often margins of bin `bin` come up, and the chance that goes with them.
    double bin_share(int bin) const;
    double bin_rate(std::int32_t position, int bin) const { return rate(position_class(position), bin); }

    void observe(std::int32_t position, float margin, bool accepted);
    // A token went by without a draft: what the last rounds said fades.
    void relax();

private:
    static constexpr int kPositionClasses = 4;  // 1, 2, 3 to 4, 5 and on
    static int position_class(std::int32_t position);
    static int margin_bin(float margin);
    double rate(int position_class, int bin) const;
    double tilted(double rate) const { return rate * tilt_ / (rate * tilt_ + 1.0 - rate); }

    struct Count {
        double hits = 0.0;
        double total = 0.0;
        void decay(double factor) {
            hits *= factor;
            total *= factor;
        }
        void add(bool accepted) {
            hits += accepted ? 1.0 : 0.0;
            total += 1.0;
        }
    };
    double tilt_ = 1.0;  // multiplies the odds
    Count overall_;
    std::array<Count, kPositionClasses> positions_;
    std::array<Count, kMarginBins> bins_;
    std::array<std::array<Count, kMarginBins>, kPositionClasses> cells_;
};

}  // namespace foresay::speculative
