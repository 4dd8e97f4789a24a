// kernels/quant/nvfp4.h: four-bit floats in groups of 16 with an eight-bit float as scale, four groups to a block.
//
// Layout:   36 bytes for 64 values: four scale bytes, then 8 bytes of codes for each group. Value j of a group is in
// the
//           low half of byte j, value j + 8 in the high half. A code is a sign, two bits of exponent and one of
//           mantissa: 0, 1/2, 1, 3/2, 2, 3, 4, 6 and their negatives. A scale has four bits of exponent (bias 7) and
//           three of mantissa; its uppermost bit means nothing, and 0x7f means zero.
//               value = number * scale            4.5 bits per value
// Precision: exact in float32.
// Kernels:  BF16, which holds every value.
// Source:   GGUF type 40.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"

namespace foresay::kernels {

struct NVFP4 {
    static constexpr const char* kName = "NVFP4";
    static constexpr std::uint32_t kGgmlType = 40;
    static constexpr int kElements = 64;
    using Packed = BF16;

    struct Block {
        std::uint8_t scales[4];
        std::uint8_t codes[32];
    };
    static_assert(sizeof(Block) == 36 && alignof(Block) == 1 && offsetof(Block, codes) == 4);

    static float scale(std::uint8_t byte) {
        const unsigned exponent = byte >> 3 & 15u, mantissa = byte & 7u;
        if (byte == 0x7f) return 0.0f;
        if (exponent == 0) return static_cast<float>(mantissa) * 0x1p-9f;
        return f32_from_bits((exponent + 120) << 23 | mantissa << 20);
    }
    static float dequantize(const Block& block, int element) {
        constexpr std::int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        const int group = element / 16, j = element % 16;
        const int code = block.codes[group * 8 + j % 8] >> (j / 8 * 4) & 15;
        return static_cast<float>(kTwice[code]) * (0.5f * scale(block.scales[group]));
    }
};

}  // namespace foresay::kernels
