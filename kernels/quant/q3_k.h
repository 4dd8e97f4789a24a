// kernels/quant/q3_k.h: 3-bit codes in groups of 16 with a 6-bit scale each, sixteen groups to a block.
//
// Layout:   110 bytes for 256 values: 32 bytes of upper bits, 64 bytes of lower bit pairs, 12 bytes of scales, f16 d.
//           Bit pairs lie as in Q2_K; the upper bit of value l of quarter q of half h is bit 4 h + q of byte l. Scale
//           k has the low nibble of byte k % 8 for k < 8, else the high one, and bits 2 (k / 4) and above of byte
//           8 + k % 4.
//               value = d * (scale - 32) * (code - 4)                   3.4375 bits per value
// Precision: exact in float32.
// Kernels:  Q6_K, whose scales are signed bytes and whose codes have a middle of 32.
// Source:   GGUF type 11.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/pack_codes.h"

namespace foresay::kernels {

struct Q3_K {
    static constexpr const char* kName = "Q3_K";
    static constexpr std::uint32_t kGgmlType = 11;
    static constexpr int kElements = 256;
    using Packed = Q6_K;

    struct Block {
        std::uint8_t upper[32];
        std::uint8_t lower[64];
        std::uint8_t scales[12];
        StoredF16 d;
    };
    static_assert(sizeof(Block) == 110 && alignof(Block) == 1);
    static_assert(offsetof(Block, lower) == 32 && offsetof(Block, scales) == 96 && offsetof(Block, d) == 108);

    // Code of value `element`, 0 to 7.
    static int code(const Block& block, int element) {
        const int half = element / 128, quarter = element % 128 / 32, l = element % 32;
        const int lower = block.lower[half * 32 + l] >> (quarter * 2) & 3;
        return lower | (block.upper[l] >> (half * 4 + quarter) & 1) << 2;
    }
    // Scale of a group of 16, 0 to 63.
    static int scale(const Block& block, int group) {
        const int lower = block.scales[group % 8] >> (group / 8 * 4) & 15;
        return lower | (block.scales[8 + group % 4] >> (group / 4 * 2) & 3) << 4;
    }
    static float dequantize(const Block& block, int element) {
        const float factor = block.d.value() * static_cast<float>(scale(block, element / 16) - 32);
        return factor * static_cast<float>(code(block, element) - 4);
    }
    static void pack(const Block& block, Q6_K::Block* out) {
        for (int group = 0; group < 16; ++group) {
            out->scales[group] = static_cast<std::int8_t>(scale(block, group) - 32);
        }
        out->d = block.d;
        std::uint8_t codes[kElements];
        for (int eighth = 0; eighth < 8; ++eighth) {
            const int shift = eighth % 4 * 2;
            const std::uint8_t* const lower = block.lower + eighth / 4 * 32;
            for (int l = 0; l < 32; ++l) {
                const int code = (lower[l] >> shift & 3) | (block.upper[l] >> eighth & 1) << 2;
                codes[32 * eighth + l] = static_cast<std::uint8_t>(code - 4 + 32);
            }
        }
        set_codes(*out, codes);
    }
};

}  // namespace foresay::kernels
