// core/weights/finite.h: finds weights that are NaN or infinite.
//
// Damaged or badly converted files hold such values. A model with them would generate nonsense without any error.
// Cost:     reads every value of float tensors, and the float16 scales of quantised ones: a fraction of the time that
//           packing takes.
// Threads:  any.
#pragma once

#include <cstdint>

#include "kernels/quant_type.h"

namespace foresay::core {

// The first row with a value that is NaN or infinite; -1 when all are finite.
std::int64_t first_row_not_finite(const kernels::TensorView& tensor);

}  // namespace foresay::core
