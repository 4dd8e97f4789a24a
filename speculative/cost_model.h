// speculative/cost_model.h: what a forward of the target costs by its number of rows, measured while generating.
//
// The cost of a width (a number of rows) is a common pace, which follows the machine and the growing context, times a
// shape per width. Widths that were never measured are interpolated. A width never costs more than a larger one, nor
// more than the next smaller one and a plain step, because those forwards could replace it. Widths just above those in
// use slowly become cheaper, so that one that looked expensive by accident is tried again.
// Attention costs more after many positions than after few. Where that is calibrated, the cost of a forward is what is
// said above plus so much for each position that its rows attend to, and observe() gets the former.
// Threads:  one caller at a time.
// Cost:     reading is a table look-up; allocates when it is made.
#pragma once

#include <cstdint>
#include <vector>

#include "core/config/schema.h"

namespace foresay::speculative {

class CostModel {
public:
    static constexpr std::int32_t kMaxWidth = core::kMaxDraft + 1;

    // For forwards of at most `widest` rows.
    explicit CostModel(std::int32_t widest = kMaxWidth)
        : shape_(static_cast<std::size_t>(widest) + 1), table_(shape_.size()), known_(shape_.size()) {}
    std::int32_t widest() const { return static_cast<std::int32_t>(table_.size()) - 1; }

    // A forward of `rows` rows took `ms`. calibrate() takes the value as it is, observe() blends it in.
    void calibrate(std::int32_t rows, double ms);
    void observe(std::int32_t rows, double ms);

    // Milliseconds for each position: of a sequence's first row in a forward, and of each further row of it, for which
    // the keys and values are in the caches.
    void calibrate_attention(double first_ms, double further_ms) {
        first_row_ms_ = first_ms;
        further_row_ms_ = further_ms;
    }
    // What attention adds to such a row after so many positions.
    double first_row_ms(std::int32_t positions) const { return first_row_ms_ * positions; }
    double further_row_ms(std::int32_t positions) const { return further_row_ms_ * positions; }

    bool calibrated() const { return known_[1] != 0; }
    double verify_ms(std::int32_t rows) const { return pace_ * table_[static_cast<std::size_t>(rows)]; }

private:
    void interpolate();

    double pace_ = 1.0;
    double first_row_ms_ = 0.0, further_row_ms_ = 0.0;
    std::vector<double> shape_;  // as measured, by rows; 0 is unused
    std::vector<double> table_;  // with the rules above applied
    std::vector<std::uint8_t> known_;
};

}  // namespace foresay::speculative
