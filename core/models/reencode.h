// core/models/reencode.h: a tensor in another encoding.
//
// Threads:  uses all cores for itself while it runs.
// Cost:     decodes and encodes every value once, a few nanoseconds each.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/encoding.h"

namespace foresay::core {

// Whether `view` has whole blocks of `encoding` and would take fewer bytes in it.
bool shrinks(const kernels::TensorView& view, kernels::Encoding encoding);

// The tensor's values in `encoding`; `bytes` receives them and must outlive the view that is returned.
kernels::TensorView reencode(const kernels::TensorView& view, kernels::Encoding encoding,
                             std::vector<std::byte>& bytes);

}  // namespace foresay::core
