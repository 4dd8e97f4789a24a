// kernels/quant/q6_k.h: 6-bit codes in groups of 16 with an 8-bit scale each, sixteen groups to a block.
//
// Layout:   210 bytes for 256 values: 128 bytes of low nibbles, 64 bytes of upper bit pairs, 16 signed scales, f16 d.
//           Each half of 128 values has 64 bytes of nibbles and 32 of pairs and falls into four quarters of 32:
//               nibble of value l of quarter q    byte (q % 2) * 32 + l, low nibble for q < 2, high nibble otherwise
//               bit pair of value l of quarter q  byte l, bits 2q and 2q + 1
//               value = d * scale[element / 16] * (code - 32)            6.5625 bits per value
// Precision: exact in float32 (11-bit d, 7-bit scale, 6-bit code).
// Source:   GGUF type 14.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/quant/f16.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

struct Q6_K {
    static constexpr QuantType kQuantType = QuantType::q6_k;
    static constexpr std::uint32_t kGgmlType = 14;
    static constexpr int kElements = 256;
    static constexpr int kGroup = 16;

    struct Block {
        std::uint8_t low[128];
        std::uint8_t high[64];
        std::int8_t scales[16];
        StoredF16 d;
    };
    static_assert(sizeof(Block) == 210 && alignof(Block) == 1);
    static_assert(offsetof(Block, high) == 128 && offsetof(Block, scales) == 192 && offsetof(Block, d) == 208);

    // Code of value `element`, 0 to 63.
    FORESAY_HOST_DEVICE static int code(const Block& block, int element) {
        const int half = element / 128;
        const int quarter = element % 128 / 32;
        const int l = element % 32;
        const int low = (block.low[half * 64 + quarter % 2 * 32 + l] >> (quarter / 2 * 4)) & 15;
        return low | (((block.high[half * 32 + l] >> (quarter * 2)) & 3) << 4);
    }
    FORESAY_HOST_DEVICE static float dequantize(const Block& block, int element) {
        const float scale = block.d.value() * static_cast<float>(block.scales[element / kGroup]);
        return scale * static_cast<float>(code(block, element) - 32);
    }
    static void dequantize_block(const Block& block, float* out) {
        const float d = block.d.value();
        for (int group = 0; group < 16; ++group) {
            const float scale = d * static_cast<float>(block.scales[group]);
            const int half = group / 8;
            const int quarter = group % 8 / 2;
            const std::uint8_t* low = block.low + half * 64 + quarter % 2 * 32 + group % 2 * kGroup;
            const std::uint8_t* high = block.high + half * 32 + group % 2 * kGroup;
            for (int j = 0; j < kGroup; ++j) {
                const int code = ((low[j] >> (quarter / 2 * 4)) & 15) | (((high[j] >> (quarter * 2)) & 3) << 4);
                out[group * kGroup + j] = scale * static_cast<float>(code - 32);
            }
        }
    }
};

}  // namespace foresay::kernels
