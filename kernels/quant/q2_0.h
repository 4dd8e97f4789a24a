// kernels/quant/q2_0.h: 2-bit codes in groups of 64 with one scale.
//
// Layout:   18 bytes for 64 values: f16 d, then 16 bytes of codes, the first value in the lowest bits.
//               value = d * (code - 1)            2.25 bits per value
// Precision: exact in float32.
// Kernels:  Q4_0 with codes from 7 to 10.
// Source:   GGUF type 42.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/pack_codes.h"

namespace foresay::kernels {

struct Q2_0 {
    static constexpr const char* kName = "Q2_0";
    static constexpr std::uint32_t kGgmlType = 42;
    static constexpr int kElements = 64;
    using Packed = Q4_0;

    struct Block {
        StoredF16 d;
        std::uint8_t codes[16];
    };
    static_assert(sizeof(Block) == 18 && alignof(Block) == 1 && offsetof(Block, codes) == 2);

    // Code of value `element`, 0 to 3.
    static int code(const Block& block, int element) { return block.codes[element / 4] >> (element % 4 * 2) & 3; }
    static float dequantize(const Block& block, int element) {
        return block.d.value() * static_cast<float>(code(block, element) - 1);
    }
    static void pack(const Block& block, Q4_0::Block* out) {
        for (int b = 0; b < kElements / Q4_0::kElements; ++b, ++out) {
            out->d = block.d;
            GroupBytes codes = split_group<2>(reinterpret_cast<const std::byte*>(block.codes + 8 * b));
            for (std::uint64_t& eight : codes.eights) eight += eight_of(7);
            set_codes(*out, codes);
        }
    }
};

}  // namespace foresay::kernels
