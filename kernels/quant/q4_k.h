// kernels/quant/q4_k.h: 4-bit codes in groups of 32 with a scale and a minimum each, eight groups to a block.
//
// Layout:   144 bytes for 256 values: f16 d, f16 dmin, 12 bytes of 6-bit scales and minima (k_scales.h), 128 bytes of
//           codes. Groups come in pairs: 32 bytes hold group 2c in their low nibbles and group 2c + 1 in their high
//           ones.
//               value = (d * scale[group]) * code - dmin * minimum[group]            4.5 bits per value
// Precision: both products are exact in float32; the subtraction rounds once.
// Source:   GGUF type 12.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/k_scales.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

struct Q4_K {
    static constexpr QuantType kQuantType = QuantType::q4_k;
    static constexpr std::uint32_t kGgmlType = 12;
    static constexpr int kElements = 256;
    static constexpr int kGroup = 32;

    struct Block {
        StoredF16 d;
        StoredF16 dmin;
        KScales scales;
        std::uint8_t codes[128];

        static constexpr int kCodeBits = 4;
        // Of value `element`.
        void set_code(int element, int code) {
            std::uint8_t& byte = codes[element / (2 * kGroup) * kGroup + element % kGroup];
            const int shift = element / kGroup % 2 * 4;
            byte = static_cast<std::uint8_t>((byte & ~(15 << shift)) | code << shift);
        }
    };
    static_assert(sizeof(Block) == 144 && alignof(Block) == 1);
    static_assert(offsetof(Block, dmin) == 2 && offsetof(Block, scales) == 4 && offsetof(Block, codes) == 16);

    // Code of value `element`, 0 to 15.
    FORESAY_HOST_DEVICE static int code(const Block& block, int element) {
        const int group = element / kGroup;
        return (block.codes[group / 2 * kGroup + element % kGroup] >> (group % 2 * 4)) & 15;
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
            const std::uint8_t* codes = block.codes + group / 2 * kGroup;
            const int shift = group % 2 * 4;
            for (int j = 0; j < kGroup; ++j) {
                out[group * kGroup + j] = scale * static_cast<float>((codes[j] >> shift) & 15) - minimum;
            }
        }
    }
};

}  // namespace foresay::kernels
