// kernels/quant/q8_0.h: 8-bit codes in groups of 32 with one scale.
//
// Layout:   34 bytes for 32 values: f16 d, then 32 signed bytes in order.
//               value = d * code                  8.5 bits per value
// Precision: exact in float32 (11-bit scale times 8-bit code).
// Source:   GGUF type 8.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/quant/f16.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

struct Q8_0 {
    static constexpr QuantType kQuantType = QuantType::q8_0;
    static constexpr std::uint32_t kGgmlType = 8;
    static constexpr int kElements = 32;

    struct Block {
        StoredF16 d;
        std::int8_t codes[32];
    };
    static_assert(sizeof(Block) == 34 && alignof(Block) == 1 && offsetof(Block, codes) == 2);

    FORESAY_HOST_DEVICE static float dequantize(const Block& block, int element) {
        return block.d.value() * static_cast<float>(block.codes[element]);
    }
    static void dequantize_block(const Block& block, float* out) {
        const float d = block.d.value();
        for (int j = 0; j < 32; ++j) out[j] = d * static_cast<float>(block.codes[j]);
    }
};

}  // namespace foresay::kernels
