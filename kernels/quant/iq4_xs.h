// kernels/quant/iq4_xs.h: 4-bit indices into the numbers of IQ4_NL, in groups of 32 with a 6-bit scale each, eight
// groups to a block.
//
// Layout:   136 bytes for 256 values: f16 d, 2 bytes of upper scale bits, 4 bytes of lower ones, 128 bytes of indices.
//           Group g has the low nibble of byte g / 2 for even g, else the high one, and bits 2 g and 2 g + 1 of the
//           upper bits. Each group's 16 bytes of indices lie as in IQ4_NL.
//               value = d * (scale - 32) * kIq4Numbers[index]       4.25 bits per value
// Precision: exact in float32.
// Kernels:  packed, with the same scales and indices.
// Source:   GGUF type 23.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/code_stream.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/packing.h"

namespace foresay::kernels {

struct IQ4_XS {
    static constexpr const char* kName = "IQ4_XS";
    static constexpr std::uint32_t kGgmlType = 23;
    static constexpr int kElements = 256;

    struct Block {
        StoredF16 d;
        std::uint8_t upper[2];
        std::uint8_t lower[4];
        std::uint8_t indices[8][16];
    };
    static_assert(sizeof(Block) == 136 && alignof(Block) == 1);
    static_assert(offsetof(Block, upper) == 2 && offsetof(Block, lower) == 4 && offsetof(Block, indices) == 8);

    // Scale of a group, 0 to 63.
    static int scale(const Block& block, int group) {
        const int lower = block.lower[group / 2] >> (group % 2 * 4) & 15;
        return lower | (block.upper[group / 4] >> (group % 4 * 2) & 3) << 4;
    }
    static int index(const Block& block, int element) {
        const int group = element / 32, j = element % 32;
        return block.indices[group][j % 16] >> (j / 16 * 4) & 15;
    }
    static float dequantize(const Block& block, int element) {
        const int group = element / 32;
        const float factor = block.d.value() * static_cast<float>(scale(block, group) - 32);
        return factor * static_cast<float>(kIq4Numbers[index(block, element)]);
    }
    static const Packing& packing() {
        static const Packing packing{
            .form = ScaleForm::k_table, .kinds = {4 | kHead, 4, 4, 4, 4, 4, 4, 4}, .table = std::to_array(kIq4Numbers)};
        return packing;
    }
    static void pack(const Block& block, std::byte* out) {
        out = put_bytes(out, block.d.value());
        for (int half = 0; half < 16; ++half)
            out = put_bytes(out, static_cast<std::int8_t>(scale(block, half / 2) - 32));
        for (int begin = 0; begin < kElements; begin += kPackedGroup) {
            out = put_group<4>(out, split_nibbles(block.indices[begin / kPackedGroup]));
        }
    }
};

}  // namespace foresay::kernels
