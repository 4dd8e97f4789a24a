// kernels/quant/q1_0.h: signs in groups of 128 with one magnitude.
//
// Layout:   18 bytes for 128 values: f16 d, then 16 bytes of signs, the first value in the lowest bit.
//               value = bit set ? d : -d          1.125 bits per value
// Precision: exact in float32.
// Kernels:  Q4_0 with codes 7 and 9.
// Source:   GGUF type 41.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/pack_codes.h"

namespace foresay::kernels {

struct Q1_0 {
    static constexpr const char* kName = "Q1_0";
    static constexpr std::uint32_t kGgmlType = 41;
    static constexpr int kElements = 128;
    using Packed = Q4_0;

    struct Block {
        StoredF16 d;
        std::uint8_t signs[16];
    };
    static_assert(sizeof(Block) == 18 && alignof(Block) == 1 && offsetof(Block, signs) == 2);

    static int number(const Block& block, int element) {
        return (block.signs[element / 8] >> (element % 8) & 1) != 0 ? 1 : -1;
    }
    static float dequantize(const Block& block, int element) {
        return block.d.value() * static_cast<float>(number(block, element));
    }
    static void pack(const Block& block, Q4_0::Block* out) {
        for (int b = 0; b < kElements / Q4_0::kElements; ++b, ++out) {
            out->d = block.d;
            GroupBytes codes;
            for (int e = 0; e < 4; ++e) codes.eights[e] = eight_of(7) + 2 * spread_bits(block.signs[4 * b + e]);
            set_codes(*out, codes);
        }
    }
};

}  // namespace foresay::kernels
