// speculative/acceptance.h: how likely the draft model's next token is to be the target's, learnt while generating.
//
// Layout:   counts per bin of the drafter's margin, for each of three views: no other source had an offer, one offered
//           the same token, or another one; and those again per class of how long the offer's match was, which is known
//           before the draft runs. Counts decay, so that they follow the text. Thin cells lean on the bin of their
//           view, thin bins on the view. A common shift of the odds follows the last few rounds: texts turn from easy
//           to hard within a line.
// Threads:  one caller at a time.
// Cost:     a few additions per drafted token; no allocation.
#pragma once

#include <array>
#include <cstdint>

namespace foresay::speculative {

inline constexpr int kMarginBins = 12;
inline constexpr int kMatchClasses = 4;

enum class View : std::uint8_t { alone, same, other };
inline constexpr int kViews = 3;

// Classes of an offer's length, 0 for none: 0, 1, 2 to 4, 5 and on.
int match_class(std::int32_t length);

class Acceptance {
public:
    Acceptance();
    // P(the token is accepted | those before it were, what is known of it).
    double given(int match, View view, float margin) const { return rate(match, view, margin_bin(margin)); }
    // The same before the draft has run.
    double expected(int match) const;
    // The same for a token further ahead, of which nothing is known.
    double expected() const;
    // How often a view comes up in a class, a bin in that view, and the chance that goes with them.
    double view_share(int match, View view) const;
    double bin_share(View view, int bin) const;
    double bin_rate(int match, View view, int bin) const { return rate(match, view, bin); }

    void observe(int match, View view, float margin, bool accepted);
    // A token went by without a draft: what the last rounds said fades.
    void relax();

private:
    static int margin_bin(float margin);
    double rate(int match, View view, int bin) const;
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
    struct ViewCounts {
        Count all;
        std::array<Count, kMarginBins> bins;
        std::array<std::array<Count, kMarginBins>, kMatchClasses> cells;
    };
    double tilt_ = 1.0;  // multiplies the odds
    Count overall_;
    std::array<Count, kMatchClasses> classes_;
    std::array<std::array<double, kViews>, kMatchClasses> view_totals_;
    std::array<ViewCounts, kViews> views_;
};

}  // namespace foresay::speculative
