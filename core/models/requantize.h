// core/models/requantize.h: a tensor in another quantisation type.
//
// Threads:  uses all cores for itself while it runs.
// Cost:     decodes and encodes every value once, a few nanoseconds each.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/quant_type.h"

namespace foresay::core {

// Whether `view` has whole blocks of `quantisation type` and would take fewer bytes in it.
bool shrinks(const kernels::TensorView& view, kernels::QuantType quant_type);

// The tensor's values in `quantisation type`; `bytes` receives them and must outlive the view that is returned.
kernels::TensorView requantize(const kernels::TensorView& view, kernels::QuantType quant_type,
                               std::vector<std::byte>& bytes);

}  // namespace foresay::core
