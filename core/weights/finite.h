// core/weights/finite.h: are the numbers of a tensor numbers?
//
// Damaged or badly converted weights hold NaN or infinities, and a model with them says nonsense without any complaint.
// Cost:     reads every value of unquantised tensors, and the scales of quantised ones: a fraction of packing them.
// Threads:  any.
#pragma once

#include <cstdint>

#include "kernels/encoding.h"

namespace foresay::core {

// The first row with a value that is NaN or infinite; -1 when all are finite.
std::int64_t first_row_not_finite(const kernels::TensorView& tensor);

}  // namespace foresay::core
