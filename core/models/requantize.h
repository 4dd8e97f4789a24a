// core/models/requantize.h: converts a tensor to another quantisation type.
//
// Threads:  uses all cores while it runs.
// Cost:     dequantises and quantises every value once, a few nanoseconds each.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/quant_type.h"

namespace foresay::core {

// Whether the rows of `view` are whole blocks of `quant_type` and would take fewer bytes in it.
bool shrinks(const kernels::TensorView& view, kernels::QuantType quant_type);

// The tensor's values in `quant_type`. They are stored in `bytes`, which must outlive the returned view.
kernels::TensorView requantize(const kernels::TensorView& view, kernels::QuantType quant_type,
                               std::vector<std::byte>& bytes);

}  // namespace foresay::core
