// kernels/quant/tq2_0.h: 2-bit codes, 256 to a block with one scale; made for weights of three states.
//
// Layout:   66 bytes for 256 values: 64 bytes of codes, f16 d. Codes lie as in Q2_K.
//               value = d * (code - 1)            2.0625 bits per value
// Precision: exact in float32.
// Kernels:  Q4_0 with codes from 7 to 10.
// Source:   GGUF type 35.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/pack_codes.h"

namespace foresay::kernels {

struct TQ2_0 {
    static constexpr const char* kName = "TQ2_0";
    static constexpr std::uint32_t kGgmlType = 35;
    static constexpr int kElements = 256;
    using Packed = Q4_0;

    struct Block {
        std::uint8_t codes[64];
        StoredF16 d;
    };
    static_assert(sizeof(Block) == 66 && alignof(Block) == 1 && offsetof(Block, d) == 64);

    // Code of value `element`, 0 to 3.
    static int code(const Block& block, int element) {
        return block.codes[element / 128 * 32 + element % 32] >> (element % 128 / 32 * 2) & 3;
    }
    static float dequantize(const Block& block, int element) {
        return block.d.value() * static_cast<float>(code(block, element) - 1);
    }
    static void pack(const Block& block, Q4_0::Block* out) {
        for (int b = 0; b < kElements / Q4_0::kElements; ++b, ++out) {
            out->d = block.d;
            GroupBytes codes;
            std::memcpy(&codes, block.codes + b / 4 * 32, sizeof codes);
            for (std::uint64_t& eight : codes.eights) eight = (eight >> (b % 4 * 2) & eight_of(3)) + eight_of(7);
            set_codes(*out, codes);
        }
    }
};

}  // namespace foresay::kernels
