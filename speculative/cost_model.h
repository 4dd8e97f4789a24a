// speculative/cost_model.h: what a forward of the target costs by its number of rows, measured while generating.
//
// The cost of a width (a number of rows) is a common pace, which follows the machine and the growing context, times a
// shape per width. Widths that were never measured are interpolated. A width never costs more than a larger one, nor
// more than the next smaller one and a plain step, because those forwards could replace it. Widths just above those in
// use slowly become cheaper, so that one that looked expensive by accident is tried again.
// Threads:  one caller at a time.
// Cost:     reading is a table look-up; no allocation.
#pragma once

#include <array>
#include <cstdint>

#include "core/config/schema.h"

namespace foresay::speculative {

class CostModel {
public:
    static constexpr std::int32_t kMaxWidth = core::kMaxDraft + 1;

    // A forward of `rows` rows took `ms`. calibrate() takes the value as it is, observe() blends it in.
    void calibrate(std::int32_t rows, double ms);
    void observe(std::int32_t rows, double ms);

    bool calibrated() const { return known_[1]; }
    double verify_ms(std::int32_t rows) const { return pace_ * table_[static_cast<std::size_t>(rows)]; }

private:
    void interpolate();

    double pace_ = 1.0;
    std::array<double, kMaxWidth + 1> shape_{};  // as measured, by rows; 0 is unused
    std::array<double, kMaxWidth + 1> table_{};  // with the rules above applied
    std::array<bool, kMaxWidth + 1> known_{};
};

}  // namespace foresay::speculative
