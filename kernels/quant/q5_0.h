// kernels/quant/q5_0.h: 5-bit codes in groups of 32 with one scale.
//
// Layout:   22 bytes for 32 values: f16 d, 4 bytes of fifth bits, 16 bytes of low nibbles. Nibbles lie as in Q4_0; the
//           fifth bit of value j is bit j % 8 of byte j / 8.
//               value = d * (code - 16)           5.5 bits per value
// Precision: exact in float32.
// Kernels:  Q8_0 with the same scales.
// Source:   GGUF type 6.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/code_stream.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/q8_0.h"

namespace foresay::kernels {

struct Q5_0 {
    static constexpr const char* kName = "Q5_0";
    static constexpr std::uint32_t kGgmlType = 6;
    static constexpr int kElements = 32;
    using Packed = Q8_0;

    struct Block {
        StoredF16 d;
        std::uint8_t fifth[4];
        std::uint8_t low[16];
    };
    static_assert(sizeof(Block) == 22 && alignof(Block) == 1);
    static_assert(offsetof(Block, fifth) == 2 && offsetof(Block, low) == 6);

    // Code of value `element`, 0 to 31.
    static int code(const Block& block, int element) {
        const int low = block.low[element % 16] >> (element / 16 * 4) & 15;
        return low | (block.fifth[element / 8] >> (element % 8) & 1) << 4;
    }
    static float dequantize(const Block& block, int element) {
        return block.d.value() * static_cast<float>(code(block, element) - 16);
    }
    static void pack(const Block& block, Q8_0::Block* out) {
        out->d = block.d;
        // Less 16: without a fifth bit the four upper ones are set.
        GroupBytes codes = split_nibbles(block.low);
        for (int e = 0; e < 4; ++e) {
            codes.eights[e] |= 0xf0 * spread_bits(static_cast<std::uint8_t>(~block.fifth[e]));
        }
        std::memcpy(out->codes, &codes, sizeof out->codes);
    }
};

}  // namespace foresay::kernels
