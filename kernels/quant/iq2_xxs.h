// kernels/quant/iq2_xxs.h: 2-bit points of a grid in groups of 32 with a 4-bit scale, eight groups to a block.
//
// Layout:   66 bytes for 256 values: f16 d; for each group four bytes of indices of points, and a word of four 7-bit
//           sets of signs (lowest first) and the scale.
//               value = d / 8 * (2 scale + 1) * number * sign       2.0625 bits per value
// Precision: exact in float32.
// Kernels:  packed: the places of the numbers in a table, in three bits, under the same scales.
// Source:   GGUF type 16.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/grids.h"

namespace foresay::kernels {

struct IQ2_XXS : GridType<IQ2_XXS> {
    static constexpr const char* kName = "IQ2_XXS";
    static constexpr std::uint32_t kGgmlType = 16;

    struct Block {
        StoredF16 d;
        std::uint8_t groups[8][8];
    };
    static_assert(sizeof(Block) == 66 && alignof(Block) == 1 && offsetof(Block, groups) == 2);

    static constexpr float kUnit = 0.125f;
    static constexpr int kBits = 3;
    static constexpr std::array<std::int8_t, 16> kNumbers = {-43, -25, -8, 8, 25, 43};
    static float d(const Block& block) { return block.d.value(); }
    static unsigned word(const Block& block, int group) {
        const std::uint8_t* const w = block.groups[group] + 4;
        return w[0] | static_cast<unsigned>(w[1]) << 8 | static_cast<unsigned>(w[2]) << 16 |
               static_cast<unsigned>(w[3]) << 24;
    }
    // Odd, of a group of 16.
    static int scale(const Block& block, int group) { return static_cast<int>(word(block, group / 2) >> 28) * 2 + 1; }
    static int number(const Block& block, int element) {
        const int group = element / 32, k = element % 32 / 8, j = element % 8;
        const int size = iq2_number(iq2_xxs_grid()[block.groups[group][k]], j);
        return minus_of_seven(word(block, group) >> (7 * k) & 127u, j) ? -size : size;
    }
    static const std::uint32_t* point_codes() { return codes_of_points<iq2_xxs_grid, 256, 8, 3, 3, 1>(); }
    // Of values 8 k to 8 k + 7.
    static std::uint32_t eight_codes(const Block& block, int k, const std::uint32_t* points) {
        const unsigned signs = word(block, k / 4) >> (7 * (k % 4)) & 127u;
        return iq2_codes(points[block.groups[k / 4][k % 4]], kSevenSpread<3>[signs]);
    }
};

}  // namespace foresay::kernels
