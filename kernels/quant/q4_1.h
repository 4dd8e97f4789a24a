// kernels/quant/q4_1.h: 4-bit codes in groups of 32 with a scale and a minimum.
//
// Layout:   20 bytes for 32 values: f16 d, f16 m, then 16 bytes of codes. Value j is in the low half of byte j, value
//           j + 16 in the high half of byte j.
//               value = d * code + m              5 bits per value
// Precision: the product is exact in float32; the sum rounds once.
// Kernels:  packed, with the same scales and minima.
// Source:   GGUF type 3.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/code_stream.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/packing.h"

namespace foresay::kernels {

struct Q4_1 {
    static constexpr const char* kName = "Q4_1";
    static constexpr std::uint32_t kGgmlType = 3;
    static constexpr int kElements = 32;

    struct Block {
        StoredF16 d;
        StoredF16 m;
        std::uint8_t codes[16];
    };
    static_assert(sizeof(Block) == 20 && alignof(Block) == 1 && offsetof(Block, codes) == 4);

    static int code(const Block& block, int element) { return block.codes[element % 16] >> (element / 16 * 4) & 15; }
    static float dequantize(const Block& block, int element) {
        return block.d.value() * static_cast<float>(code(block, element)) + block.m.value();
    }
    static const Packing& packing() {
        static const Packing packing{.form = ScaleForm::f16_minimum, .kinds = {4 | kHead}};
        return packing;
    }
    static void pack(const Block& block, std::byte* out) {
        out = put_bytes(put_bytes(out, block.d), block.m);
        put_group<4>(out, split_nibbles(block.codes));
    }
};

}  // namespace foresay::kernels
