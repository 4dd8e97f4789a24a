// kernels/quant/mxfp4.h: four-bit floats in groups of 32 that share a power of two.
//
// Layout:   17 bytes for 32 values: an exponent byte e, then 16 bytes of codes. Value j is in the low half of byte j,
//           value j + 16 in the high half of byte j. A code is a sign, two bits of exponent and one of mantissa: 0,
//           1/2, 1, 3/2, 2, 3, 4, 6 and their negatives.
//               value = number * 2^(e - 127)      4.25 bits per value
// Precision: exact in float32. e = 255 is NaN and e = 254 overflows; readers of files refuse both.
// Source:   GGUF type 39; OCP Microscaling Formats specification, version 1.0.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/quant/f16.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

struct MXFP4 {
    static constexpr QuantType kQuantType = QuantType::mxfp4;
    static constexpr std::uint32_t kGgmlType = 39;
    static constexpr int kElements = 32;
    static constexpr int kMostExponent = 253;

    struct Block {
        std::uint8_t exponent;
        std::uint8_t codes[16];
    };
    static_assert(sizeof(Block) == 17 && alignof(Block) == 1 && offsetof(Block, codes) == 1);

    // Twice the number of a code.
    FORESAY_HOST_DEVICE static constexpr int twice(int code) {
        const int magnitude = static_cast<int>(0xc8643210u >> (4 * (code & 7)) & 15u);
        return code & 8 ? -magnitude : magnitude;
    }
    // 2^(e - 128); a subnormal number for e = 0 and 1.
    FORESAY_HOST_DEVICE static float half_scale(int exponent) {
        return f32_from_bits(exponent >= 2 ? static_cast<std::uint32_t>(exponent - 1) << 23 : 0x00200000u << exponent);
    }
    FORESAY_HOST_DEVICE static int code(const Block& block, int element) {
        return block.codes[element % 16] >> (element / 16 * 4) & 15;
    }
    FORESAY_HOST_DEVICE static float dequantize(const Block& block, int element) {
        return half_scale(block.exponent) * static_cast<float>(twice(code(block, element)));
    }
    static void dequantize_block(const Block& block, float* out) {
        const float scale = half_scale(block.exponent);
        for (int j = 0; j < 16; ++j) {
            out[j] = scale * static_cast<float>(twice(block.codes[j] & 15));
            out[j + 16] = scale * static_cast<float>(twice(block.codes[j] >> 4));
        }
    }
};

}  // namespace foresay::kernels
