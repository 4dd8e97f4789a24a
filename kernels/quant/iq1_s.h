// kernels/quant/iq1_s.h: points of -1, 0 and 1 in groups of 32 with a 3-bit scale and a shift, eight groups to a block.
//
// Layout:   50 bytes for 256 values: f16 d; for each eight values a byte of the index of a point; for each group 16
//           bits: four times three upper index bits, the scale, and the sign of the shift.
//               value = d * (2 scale + 1) * (number + 1/8 or - 1/8) 1.5625 bits per value
// Precision: exact in float32.
// Kernels:  packed: the places of the numbers in a table, in three bits, under the same scales.
// Source:   GGUF type 19.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/grids.h"

namespace foresay::kernels {

struct IQ1_S : GridType<IQ1_S> {
    static constexpr const char* kName = "IQ1_S";
    static constexpr std::uint32_t kGgmlType = 19;

    struct Block {
        StoredF16 d;
        std::uint8_t points[32];
        std::uint8_t groups[8][2];
    };
    static_assert(sizeof(Block) == 50 && alignof(Block) == 1 && offsetof(Block, groups) == 34);

    static constexpr float kUnit = 0.125f;
    static constexpr int kBits = 3;
    static constexpr std::array<std::int8_t, 16> kNumbers = {-9, -7, -1, 1, 7, 9};
    static float d(const Block& block) { return block.d.value(); }
    static unsigned word(const Block& block, int group) {
        return block.groups[group][0] | static_cast<unsigned>(block.groups[group][1]) << 8;
    }
    // Odd, of a group of 16.
    static int scale(const Block& block, int group) {
        return static_cast<int>(word(block, group / 2) >> 12 & 7u) * 2 + 1;
    }
    // In eighths.
    static int number(const Block& block, int element) {
        const unsigned bits = word(block, element / 32);
        const unsigned index = block.points[element / 8] | (bits >> (3 * (element % 32 / 8)) & 7u) << 8;
        return 8 * iq1_number(iq1_grid()[index], element % 8) + ((bits & 0x8000u) != 0 ? -1 : 1);
    }
    static const std::uint32_t* point_codes() { return codes_of_points<iq1_grid, 2048, 8, 3, 0, 2>(); }
    // Of values 8 k to 8 k + 7.
    static std::uint32_t eight_codes(const Block& block, int k, const std::uint32_t* points) {
        const unsigned bits = word(block, k / 4);
        const unsigned index = block.points[k] | (bits >> (3 * (k % 4)) & 7u) << 8;
        return iq1_codes(points[index], (bits & 0x8000u) != 0);
    }
};

}  // namespace foresay::kernels
