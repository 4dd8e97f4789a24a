// kernels/quant/widen.h: MXFP4 tensors as another quantisation type, for backends that do not multiply MXFP4.
//
// Precision: exact. Twice each number is an integer of at most 12, so Q8_0 holds a block if the power of two is a
//           float16; BF16 holds every block.
// Cost:     Q8_0 takes twice the memory, BF16 four times.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/quant_type.h"

namespace foresay::kernels {

// The type that widen() needs for a tensor: Q8_0, or BF16 when a scale is none that Q8_0 has. Other types than MXFP4
// stay as they are. Reads the tensor.
QuantType widened_type(const TensorView& view);

// An MXFP4 tensor as `type`, which is one that widened_type() has given for it, or BF16. The numbers go to `bytes`. A
// view without data stays one.
TensorView widen(const TensorView& view, QuantType type, std::vector<std::byte>& bytes);

}  // namespace foresay::kernels
