// kernels/quant/iq2_s.h: 2-bit points of a grid in groups of 16 with a 4-bit scale and all signs, sixteen groups to a
// block.
//
// Layout:   82 bytes for 256 values: f16 d; for each eight values a byte of the index of a point; as many bytes of
//           signs; eight bytes of upper index bits, two for each eight values; eight bytes of scales, the low half of
//           the first group.
//               value = d / 8 * (2 scale + 1) * number * sign       2.5625 bits per value
// Precision: exact in float32.
// Kernels:  packed: the places of the numbers in a table, in three bits, under the same scales.
// Source:   GGUF type 22.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/grids.h"

namespace foresay::kernels {

struct IQ2_S : GridType<IQ2_S> {
    static constexpr const char* kName = "IQ2_S";
    static constexpr std::uint32_t kGgmlType = 22;

    struct Block {
        StoredF16 d;
        std::uint8_t points[32];
        std::uint8_t signs[32];
        std::uint8_t upper[8];
        std::uint8_t scales[8];
    };
    static_assert(sizeof(Block) == 82 && alignof(Block) == 1);
    static_assert(offsetof(Block, signs) == 34 && offsetof(Block, upper) == 66 && offsetof(Block, scales) == 74);

    static constexpr float kUnit = 0.125f;
    static constexpr int kBits = 3;
    static constexpr std::array<std::int8_t, 16> kNumbers = {-43, -25, -8, 8, 25, 43};
    static float d(const Block& block) { return block.d.value(); }
    // Odd, of a group of 16.
    static int scale(const Block& block, int group) {
        return (block.scales[group / 2] >> (group % 2 * 4) & 15) * 2 + 1;
    }
    static int number(const Block& block, int element) {
        const int k = element / 8, j = element % 8;
        const int index = block.points[k] | (block.upper[k / 4] >> (2 * (k % 4)) & 3) << 8;
        const int size = iq2_number(iq2_s_grid()[index], j);
        return (block.signs[k] >> j & 1) != 0 ? -size : size;
    }
    static const std::uint32_t* point_codes() { return codes_of_points<iq2_s_grid, 1024, 8, 3, 3, 1>(); }
    // Of values 8 k to 8 k + 7.
    static std::uint32_t eight_codes(const Block& block, int k, const std::uint32_t* points) {
        const int index = block.points[k] | (block.upper[k / 4] >> (2 * (k % 4)) & 3) << 8;
        return iq2_codes(points[index], kSpread<3>[block.signs[k]]);
    }
};

}  // namespace foresay::kernels
