// kernels/quant/q5_k.h: 5-bit codes in groups of 32 with a scale and a minimum each, eight groups to a block.
//
// Layout:   176 bytes for 256 values: f16 d, f16 dmin, 12 bytes of 6-bit scales and minima (k_scales.h), 32 bytes of
//           high bits, 128 bytes of low nibbles. Nibbles lie as in Q4_K; bit g of high byte j is bit 4 of the code of
//           value j of group g.
//               value = (d * scale[group]) * code - dmin * minimum[group]            5.5 bits per value
// Precision: both products are exact in float32; the subtraction rounds once.
// Source:   GGUF type 13.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/k_scales.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

struct Q5_K {
    static constexpr QuantType kQuantType = QuantType::q5_k;
    static constexpr std::uint32_t kGgmlType = 13;
    static constexpr int kElements = 256;
    static constexpr int kGroup = 32;

    struct Block {
        StoredF16 d;
        StoredF16 dmin;
        KScales scales;
        std::uint8_t high[32];
        std::uint8_t low[128];

        static constexpr int kCodeBits = 5;
        // Of value `element`.
        void set_code(int element, int code) {
            const int group = element / kGroup, shift = group % 2 * 4;
            std::uint8_t& lower = low[group / 2 * kGroup + element % kGroup];
            std::uint8_t& upper = high[element % kGroup];
            lower = static_cast<std::uint8_t>((lower & ~(15 << shift)) | (code & 15) << shift);
            upper = static_cast<std::uint8_t>((upper & ~(1 << group)) | (code >> 4) << group);
        }
    };
    static_assert(sizeof(Block) == 176 && alignof(Block) == 1);
    static_assert(offsetof(Block, dmin) == 2 && offsetof(Block, scales) == 4 && offsetof(Block, high) == 16 &&
                  offsetof(Block, low) == 48);

    // Code of value `element`, 0 to 31.
    FORESAY_HOST_DEVICE static int code(const Block& block, int element) {
        const int group = element / kGroup;
        const int j = element % kGroup;
        const int low = (block.low[group / 2 * kGroup + j] >> (group % 2 * 4)) & 15;
        return low | (((block.high[j] >> group) & 1) << 4);
    }
    FORESAY_HOST_DEVICE static float dequantize(const Block& block, int element) {
        const int group = element / kGroup;
        const float scale = block.d.value() * static_cast<float>(block.scales.scale(group));
        const float minimum = block.dmin.value() * static_cast<float>(block.scales.minimum(group));
        return scale * static_cast<float>(code(block, element)) - minimum;
    }
    static void dequantize_block(const Block& block, float* out) {
        const float d = block.d.value();
        const float dmin = block.dmin.value();
        for (int group = 0; group < KScales::kGroups; ++group) {
            const float scale = d * static_cast<float>(block.scales.scale(group));
            const float minimum = dmin * static_cast<float>(block.scales.minimum(group));
            const std::uint8_t* low = block.low + group / 2 * kGroup;
            const int shift = group % 2 * 4;
            for (int j = 0; j < kGroup; ++j) {
                const int code = ((low[j] >> shift) & 15) | (((block.high[j] >> group) & 1) << 4);
                out[group * kGroup + j] = scale * static_cast<float>(code) - minimum;
            }
        }
    }
};

}  // namespace foresay::kernels
