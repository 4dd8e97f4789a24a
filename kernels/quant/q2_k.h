// kernels/quant/q2_k.h: 2-bit codes in groups of 16 with a 4-bit scale and minimum each, sixteen groups to a block.
//
// Layout:   84 bytes for 256 values: 16 bytes of scales (low nibble) and minima (high nibble), 64 bytes of codes, f16
//           d, f16 dmin. Each half of 128 values has 32 bytes of codes: value l of quarter q (of 32) is bits 2 q and 2
//           q + 1 of byte l.
//               value = (d * scale) * code - dmin * minimum             2.625 bits per value
// Precision: both products are exact in float32; the subtraction rounds once.
// Kernels:  packed, with the same scales and minima.
// Source:   GGUF type 10.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/code_stream.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/packing.h"

namespace foresay::kernels {

struct Q2_K {
    static constexpr const char* kName = "Q2_K";
    static constexpr std::uint32_t kGgmlType = 10;
    static constexpr int kElements = 256;

    struct Block {
        std::uint8_t scales[16];
        std::uint8_t codes[64];
        StoredF16 d;
        StoredF16 dmin;
    };
    static_assert(sizeof(Block) == 84 && alignof(Block) == 1);
    static_assert(offsetof(Block, codes) == 16 && offsetof(Block, d) == 80 && offsetof(Block, dmin) == 82);

    static int code(const Block& block, int element) {
        const int half = element / 128, quarter = element % 128 / 32;
        return block.codes[half * 32 + element % 32] >> (quarter * 2) & 3;
    }
    static float dequantize(const Block& block, int element) {
        const int both = block.scales[element / 16];
        const float scale = block.d.value() * static_cast<float>(both & 15);
        const float minimum = block.dmin.value() * static_cast<float>(both >> 4);
        return scale * static_cast<float>(code(block, element)) - minimum;
    }
    static const Packing& packing() {
        static const Packing packing{.form = ScaleForm::k_minimum, .kinds = {2 | kHead, 2, 2, 2, 2, 2, 2, 2}};
        return packing;
    }
    static void pack(const Block& block, std::byte* out) {
        out = put_bytes(put_bytes(put_bytes(out, block.d), block.dmin), block.scales);
        for (int begin = 0; begin < kElements; begin += kPackedGroup) {
            constexpr std::uint64_t kPairs = 0x0303030303030303;
            GroupBytes codes;
            std::memcpy(&codes, block.codes + begin / 128 * 32, sizeof codes);
            for (std::uint64_t& eight : codes.eights) eight = eight >> (begin % 128 / 32 * 2) & kPairs;
            out = put_group<2>(out, codes);
        }
    }
};

}  // namespace foresay::kernels
