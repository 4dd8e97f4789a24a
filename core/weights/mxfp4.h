// core/weights/mxfp4.h: MXFP4 weights as other quantisation types. An MXFP4 number is a four-bit float (0, 1/2, 1, 3/2,
// 2, 3, 4, 6 and their negatives) times a power of two that 32 neighbours share, which Q8_0 holds without loss.
//
// Layout:   16 bytes of codes and an exponent byte e for 32 values, times 2^(e - 127). In GGUF the byte comes first and
//           value j is in the low half of byte j, j + 16 in the high half. In safetensors codes and exponents are two
//           tensors, and value 2 j is in the low half of byte j, 2 j + 1 in the high half.
// Errors:   throws Error for an exponent of 255, which is NaN.
// Source:   OCP Microscaling Formats specification, version 1.0.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/quant_type.h"

namespace foresay::core {

inline constexpr std::int64_t kMxfp4Values = 32;
inline constexpr std::int64_t kMxfp4Bytes = 16;  // of codes

// A matrix of `rows` x `cols` (whole blocks) in MXFP4.
struct Mxfp4 {
    const std::byte* codes = nullptr;  // of the first block of row 0
    const std::byte* exponents = nullptr;
    std::int64_t code_stride = kMxfp4Bytes, exponent_stride = 1;  // from one block to the next
    bool neighbours = false;                                      // the order of safetensors

    static Mxfp4 gguf(const std::byte* blocks) { return {blocks + 1, blocks, 17, 17, false}; }
    static Mxfp4 safetensors(const std::byte* codes, const std::byte* exponents) {
        return {codes, exponents, kMxfp4Bytes, 1, true};
    }
};

// Rows first, first + step, ... of the matrix, `rows` of them, in Q8_0, or in BF16 when an exponent is outside the
// range of Q8_0's scale. Stored in `bytes`. `name` is for messages.
kernels::TensorView decode_mxfp4(const Mxfp4& matrix, std::int64_t first, std::int64_t step, std::int64_t rows,
                                 std::int64_t cols, std::vector<std::byte>& bytes, const std::string& name);

}  // namespace foresay::core
