// kernels/quant/iq2_xs.h: 2-bit points of a grid in groups of 16 with a 4-bit scale, sixteen groups to a block.
//
// Layout:   74 bytes for 256 values: f16 d; for each eight values 16 bits, of which 9 are the index of a point and 7
//           signs; eight bytes of scales, the low half of the first group.
//               value = d / 8 * (2 scale + 1) * number * sign       2.3125 bits per value
// Precision: exact in float32.
// Kernels:  packed: the places of the numbers in a table, in three bits, under the same scales.
// Source:   GGUF type 17.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/grids.h"

namespace foresay::kernels {

struct IQ2_XS : GridType<IQ2_XS> {
    static constexpr const char* kName = "IQ2_XS";
    static constexpr std::uint32_t kGgmlType = 17;

    struct Block {
        StoredF16 d;
        std::uint8_t points[32][2];
        std::uint8_t scales[8];
    };
    static_assert(sizeof(Block) == 74 && alignof(Block) == 1 && offsetof(Block, scales) == 66);

    static constexpr float kUnit = 0.125f;
    static constexpr int kBits = 3;
    static constexpr std::array<std::int8_t, 16> kNumbers = {-43, -25, -8, 8, 25, 43};
    static float d(const Block& block) { return block.d.value(); }
    // Odd, of a group of 16.
    static int scale(const Block& block, int group) {
        return (block.scales[group / 2] >> (group % 2 * 4) & 15) * 2 + 1;
    }
    static int number(const Block& block, int element) {
        const std::uint8_t* const given = block.points[element / 8];
        const unsigned bits = given[0] | static_cast<unsigned>(given[1]) << 8;
        const int size = iq2_number(iq2_xs_grid()[bits & 511u], element % 8);
        return minus_of_seven(bits >> 9, element % 8) ? -size : size;
    }
    static const std::uint32_t* point_codes() { return codes_of_points<iq2_xs_grid, 512, 8, 3, 3, 1>(); }
    // Of values 8 k to 8 k + 7.
    static std::uint32_t eight_codes(const Block& block, int k, const std::uint32_t* points) {
        const unsigned bits = block.points[k][0] | static_cast<unsigned>(block.points[k][1]) << 8;
        return iq2_codes(points[bits & 511u], kSevenSpread<3>[bits >> 9]);
    }
};

}  // namespace foresay::kernels
