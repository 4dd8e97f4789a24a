// kernels/quant/nvfp4.h: four-bit floats in groups of 16 with an eight-bit float as scale, four groups to a block.
//
// Layout:   36 bytes for 64 values: four scale bytes, then 8 bytes of codes for each group. Value j of a group is in
//           the low half of byte j, value j + 8 in the high half. A code is a sign, two bits of exponent and one of
//           mantissa: 0, 1/2, 1, 3/2, 2, 3, 4, 6 and their negatives. A scale has four bits of exponent (bias 7) and
//           three of mantissa; its uppermost bit means nothing, and 0x7f means zero.
//               value = number * scale            4.5 bits per value
// Precision: exact in float32.
// Kernels:  packed, with the scales in float32. BF16 holds every value as well.
// Source:   GGUF type 40.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/bf16.h"
#include "kernels/quant/code_stream.h"
#include "kernels/quant/packing.h"

namespace foresay::kernels {

struct NVFP4 {
    static constexpr const char* kName = "NVFP4";
    static constexpr std::uint32_t kGgmlType = 40;
    static constexpr int kElements = 64;

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
    // Twice the numbers.
    static constexpr std::array<std::int8_t, 16> kTwice = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
    static int code(const Block& block, int element) {
        const int group = element / 16, j = element % 16;
        return block.codes[group * 8 + j % 8] >> (j / 8 * 4) & 15;
    }
    static float dequantize(const Block& block, int element) {
        return static_cast<float>(kTwice[static_cast<std::size_t>(code(block, element))]) *
               (0.5f * scale(block.scales[element / 16]));
    }
    static const Packing& packing() {
        static const Packing packing{
            .form = ScaleForm::f32_table, .kinds = {4 | kHead}, .table = kTwice, .plain = QuantType::bf16};
        return packing;
    }
    static void pack(const Block& block, std::byte* out) {
        for (int begin = 0; begin < kElements; begin += kPackedGroup) {
            for (int h = 0; h < 2; ++h) out = put_bytes(out, 0.5f * scale(block.scales[begin / 16 + h]));
            // Eight bytes hold the first eight codes in their low halves and the next eight in their high ones.
            constexpr std::uint64_t kLow = 0x0f0f0f0f0f0f0f0f;
            std::uint64_t sixteen[2];
            std::memcpy(sixteen, block.codes + begin / 2, sizeof sixteen);
            const GroupBytes codes{
                {sixteen[0] & kLow, sixteen[0] >> 4 & kLow, sixteen[1] & kLow, sixteen[1] >> 4 & kLow}};
            out = put_group<4>(out, codes);
        }
    }
};

}  // namespace foresay::kernels
