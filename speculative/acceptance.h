// speculative/acceptance.h: how likely the draft model's next token is to be the target's, learnt while generating.
//
// Layout:   a cell per view, match class and margin bin counts verified and accepted tokens. The view is what the
//           lookups proposed: nothing, the same token or another one. The match class is the length of the lookup's
//           match, which is known before the draft model runs. Counts decay, so that they follow the text. A cell with
//           few counts leans on the bin of its view, a bin with few counts on the view. A common shift of the odds
//           follows the last few rounds, because text changes from easy to hard within a line.
// Threads:  one caller at a time.
// Cost:     a few additions per drafted token; no allocation.
#pragma once

#include <array>
#include <cstdint>

namespace foresay::speculative {

inline constexpr int kMarginBins = 12;
inline constexpr int kMatchClasses = 4;

// What the lookups proposed where the draft model proposed a token: nothing, the same token, or another one.
enum class View : std::uint8_t { alone, same, other };
inline constexpr int kViews = 3;

// Classes of the length of a match: 0 (no proposal), 1, 2 to 4, 5 or more.
int match_class(std::int32_t length);

class Acceptance {
public:
    Acceptance();
    // P(the token is accepted | those before it were accepted, and what is known of the token).
    double given(int match, View view, float margin) const { return rate(match, view, margin_bin(margin)); }
    // The same before the draft model runs, when only the match class is known.
    double expected(int match) const;
    // The same for a token further ahead, of which nothing is known.
    double expected() const;
    // The share of a view in a class and of a bin in that view, and the chance of acceptance there.
    double view_share(int match, View view) const;
    double bin_share(View view, int bin) const;
    double bin_rate(int match, View view, int bin) const { return rate(match, view, bin); }

    void observe(int match, View view, float margin, bool accepted);
    // A plain step emitted a token: the common shift fades.
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
