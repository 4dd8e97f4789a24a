// core/weights/mxfp4.h: MXFP4 tensors of safetensors as blocks of GGUF (kernels/quant/mxfp4.h).
//
// Layout:   safetensors has codes and exponents as two tensors, and value 2 j of a group is in the low half of byte j,
//           2 j + 1 in the high half.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/quant_type.h"

namespace foresay::core {

inline constexpr std::int64_t kMxfp4Values = 32;
inline constexpr std::int64_t kMxfp4Bytes = 16;  // of codes

// Rows first, first + step, ... of a matrix of `cols` columns (whole groups), `rows` of them, as blocks in `bytes`.
kernels::TensorView join_mxfp4(const std::byte* codes, const std::byte* exponents, std::int64_t first,
                               std::int64_t step, std::int64_t rows, std::int64_t cols, std::vector<std::byte>& bytes);

}  // namespace foresay::core
