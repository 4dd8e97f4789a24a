// kernels/quant/q4_0.h: 4-bit codes in groups of 32 with one scale.
//
// Layout:   18 bytes for 32 values: f16 d, then 16 bytes of codes. The low nibble of byte j is the code of value j, the
//           high nibble that of value j + 16.
//               value = d * (code - 8)            4.5 bits per value
// Precision: exact in float32 (11-bit scale times 4-bit code).
// Source:   GGUF type 2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/quant/f16.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

struct Q4_0 {
    static constexpr QuantType kQuantType = QuantType::q4_0;
    static constexpr std::uint32_t kGgmlType = 2;
    static constexpr int kElements = 32;

    struct Block {
        StoredF16 d;
        std::uint8_t codes[16];
    };
    static_assert(sizeof(Block) == 18 && alignof(Block) == 1 && offsetof(Block, codes) == 2);

    // Code of value `element`, 0 to 15.
    FORESAY_HOST_DEVICE static int code(const Block& block, int element) {
        return (block.codes[element & 15] >> (element >= 16 ? 4 : 0)) & 15;
    }
    FORESAY_HOST_DEVICE static float dequantize(const Block& block, int element) {
        return block.d.value() * static_cast<float>(code(block, element) - 8);
    }
    static void dequantize_block(const Block& block, float* out) {
        const float d = block.d.value();
        for (int j = 0; j < 16; ++j) {
            out[j] = d * static_cast<float>((block.codes[j] & 15) - 8);
            out[j + 16] = d * static_cast<float>((block.codes[j] >> 4) - 8);
        }
    }
};

}  // namespace foresay::kernels
