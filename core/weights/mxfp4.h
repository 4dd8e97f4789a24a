// core/weights/mxfp4.h: MXFP4 tensors of model files (kernels/quant/mxfp4.h).
//
// Layout:   GGUF has blocks of an exponent and its codes. safetensors has codes and exponents as two tensors, and value
//           2 j of a group is in the low half of byte j, 2 j + 1 in the high half.
// Errors:   throws Error for an exponent that is no number (255), or whose numbers are none in float32 (254). `name` is
//           for messages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/quant_type.h"

namespace foresay::core {

inline constexpr std::int64_t kMxfp4Values = 32;
inline constexpr std::int64_t kMxfp4Bytes = 16;  // of codes

// Checks the exponents of a tensor of a GGUF file. Reads all of it.
void check_mxfp4(const kernels::TensorView& view, const std::string& name);

// Rows first, first + step, ... of a safetensors matrix of `cols` columns (whole groups), `rows` of them, as blocks in
// `bytes`.
kernels::TensorView join_mxfp4(const std::byte* codes, const std::byte* exponents, std::int64_t first,
                               std::int64_t step, std::int64_t rows, std::int64_t cols, std::vector<std::byte>& bytes,
                               const std::string& name);

}  // namespace foresay::core
