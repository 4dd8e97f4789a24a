// kernels/quant/q5_1.h: 5-bit codes in groups of 32 with a scale and a minimum.
//
// Layout:   24 bytes for 32 values: f16 d, f16 m, then fifth bits and low nibbles as in Q5_0.
//               value = d * code + m              6 bits per value
// Precision: the product is exact in float32; the sum rounds once.
// Kernels:  packed, with the same scales and minima.
// Source:   GGUF type 7.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/code_stream.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/packing.h"

namespace foresay::kernels {

struct Q5_1 {
    static constexpr const char* kName = "Q5_1";
    static constexpr std::uint32_t kGgmlType = 7;
    static constexpr int kElements = 32;

    struct Block {
        StoredF16 d;
        StoredF16 m;
        std::uint8_t fifth[4];
        std::uint8_t low[16];
    };
    static_assert(sizeof(Block) == 24 && alignof(Block) == 1);
    static_assert(offsetof(Block, fifth) == 4 && offsetof(Block, low) == 8);

    // Code of value `element`, 0 to 31.
    static int code(const Block& block, int element) {
        const int low = block.low[element % 16] >> (element / 16 * 4) & 15;
        return low | (block.fifth[element / 8] >> (element % 8) & 1) << 4;
    }
    static float dequantize(const Block& block, int element) {
        return block.d.value() * static_cast<float>(code(block, element)) + block.m.value();
    }
    static const Packing& packing() {
        static const Packing packing{.form = ScaleForm::f16_minimum, .kinds = {5 | kHead}};
        return packing;
    }
    static void pack(const Block& block, std::byte* out) {
        out = put_bytes(put_bytes(out, block.d), block.m);
        GroupBytes codes = split_nibbles(block.low);
        for (int e = 0; e < 4; ++e) codes.eights[e] |= spread_bits(block.fifth[e]) << 4;
        put_group<5>(out, codes);
    }
};

}  // namespace foresay::kernels
