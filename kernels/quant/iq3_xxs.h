// kernels/quant/iq3_xxs.h: 3-bit points of a grid in groups of 32 with a 4-bit scale, eight groups to a block.
//
// Layout:   98 bytes for 256 values: f16 d; for each four values the index of a point; for each group a word of four
//           7-bit sets of signs (lowest first) and the scale.
//               value = d / 4 * (2 scale + 1) * number * sign       3.0625 bits per value
// Precision: exact in float32.
// Kernels:  packed: the places of the numbers in a table, in four bits, under the same scales.
// Source:   GGUF type 18.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/grids.h"

namespace foresay::kernels {

struct IQ3_XXS : GridType<IQ3_XXS> {
    static constexpr const char* kName = "IQ3_XXS";
    static constexpr std::uint32_t kGgmlType = 18;

    struct Block {
        StoredF16 d;
        std::uint8_t points[64];
        std::uint8_t words[8][4];
    };
    static_assert(sizeof(Block) == 98 && alignof(Block) == 1 && offsetof(Block, words) == 66);

    static constexpr float kUnit = 0.25f;
    static constexpr int kBits = 4;
    static constexpr std::array<std::int8_t, 16> kNumbers = {-62, -52, -44, -36, -28, -20, -12, -4,
                                                             4,   12,  20,  28,  36,  44,  52,  62};
    static float d(const Block& block) { return block.d.value(); }
    static unsigned word(const Block& block, int group) {
        const std::uint8_t* const w = block.words[group];
        return w[0] | static_cast<unsigned>(w[1]) << 8 | static_cast<unsigned>(w[2]) << 16 |
               static_cast<unsigned>(w[3]) << 24;
    }
    // Odd, of a group of 16.
    static int scale(const Block& block, int group) { return static_cast<int>(word(block, group / 2) >> 28) * 2 + 1; }
    static int number(const Block& block, int element) {
        const int k = element % 32 / 8, j = element % 8;
        const int size = iq3_xxs_number(iq3_xxs_grid()[block.points[element / 4]], element % 4);
        return minus_of_seven(word(block, element / 32) >> (7 * k) & 127u, j) ? -size : size;
    }
    static const std::uint32_t* point_codes() { return codes_of_points<iq3_xxs_grid, 256, 4, 4, 8, 1>(); }
    // Of values 8 k to 8 k + 7.
    static std::uint32_t eight_codes(const Block& block, int k, const std::uint32_t* points) {
        const unsigned signs = word(block, k / 4) >> (7 * (k % 4)) & 127u;
        const std::uint32_t first = points[block.points[2 * k]], second = points[block.points[2 * k + 1]];
        return iq3_codes(first | second << 16, kSevenSpread<4>[signs]);
    }
};

}  // namespace foresay::kernels
