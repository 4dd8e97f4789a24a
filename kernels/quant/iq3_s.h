// kernels/quant/iq3_s.h: 3-bit points of a grid in groups of 32 with a 4-bit scale and all signs, eight groups to a
// block.
//
// Layout:   110 bytes for 256 values: f16 d; for each four values a byte of the index of a point; eight bytes of the
//           indices' ninth bits; a byte of signs for each eight values; four bytes of scales, the low half of the first
//           group.
//               value = d * (2 scale + 1) * number * sign           3.4375 bits per value
// Precision: exact in float32.
// Kernels:  Q6_K, whose scales are signed bytes and whose codes have a middle of 32.
// Source:   GGUF type 21.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/grids.h"
#include "kernels/quant/pack_codes.h"

namespace foresay::kernels {

struct IQ3_S : GridType<IQ3_S> {
    static constexpr const char* kName = "IQ3_S";
    static constexpr std::uint32_t kGgmlType = 21;
    using Packed = Q6_K;

    struct Block {
        StoredF16 d;
        std::uint8_t points[64];
        std::uint8_t ninth[8];
        std::uint8_t signs[32];
        std::uint8_t scales[4];
    };
    static_assert(sizeof(Block) == 110 && alignof(Block) == 1);
    static_assert(offsetof(Block, ninth) == 66 && offsetof(Block, signs) == 74 && offsetof(Block, scales) == 106);

    static constexpr float kUnit = 1.0f;
    static float d(const Block& block) { return block.d.value(); }
    // Odd, of a group of 16.
    static int scale(const Block& block, int group) {
        return (block.scales[group / 4] >> (group / 2 % 2 * 4) & 15) * 2 + 1;
    }
    static int number(const Block& block, int element) {
        const int k = element / 4;
        const int index = block.points[k] | (block.ninth[k / 8] >> (k % 8) & 1) << 8;
        const int size = iq3_s_number(iq3_s_grid()[index], element % 4);
        return (block.signs[element / 8] >> (element % 8) & 1) != 0 ? -size : size;
    }
    static void pack(const Block& block, Q6_K::Block* out) {
        *out = {};
        for (int group = 0; group < 16; ++group) out->scales[group] = static_cast<std::int8_t>(scale(block, group));
        out->d = block.d;
        for (int i = 0; i < kElements; ++i) set_code(*out, i, number(block, i));
    }
};

}  // namespace foresay::kernels
