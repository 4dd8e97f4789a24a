// kernels/quant/iq1_m.h: points of -1, 0 and 1 in groups of 16 with a 3-bit scale, and a shift for each eight values.
//
// Layout:   56 bytes for 256 values: for each eight values a byte of the index of a point; as many nibbles of three
//           upper index bits and the sign of the shift; four 16-bit words, each with the scales of four groups and
//           above them four bits of the f16 d, whose lowest are in the first word.
//               value = d * (2 scale + 1) * (number + 1/8 or - 1/8) 1.75 bits per value
// Precision: exact in float32.
// Kernels:  packed: the places of the numbers in a table, in three bits, under the same scales.
// Source:   GGUF type 29.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/grids.h"

namespace foresay::kernels {

struct IQ1_M : GridType<IQ1_M> {
    static constexpr const char* kName = "IQ1_M";
    static constexpr std::uint32_t kGgmlType = 29;

    struct Block {
        std::uint8_t points[32];
        std::uint8_t upper[16];
        std::uint8_t scales[4][2];
    };
    static_assert(sizeof(Block) == 56 && alignof(Block) == 1);
    static_assert(offsetof(Block, upper) == 32 && offsetof(Block, scales) == 48);

    static constexpr float kUnit = 0.125f;
    static constexpr int kBits = 3;
    static constexpr std::array<std::int8_t, 16> kNumbers = {-9, -7, -1, 1, 7, 9};
    static float d(const Block& block) {
        unsigned bits = 0;
        for (int w = 0; w < 4; ++w) bits |= static_cast<unsigned>(block.scales[w][1] >> 4) << (4 * w);
        return f16_to_f32(static_cast<std::uint16_t>(bits));
    }
    // Odd, of a group of 16.
    static int scale(const Block& block, int group) {
        const std::uint8_t* const given = block.scales[group / 4];
        const int word = given[0] | given[1] << 8;
        return (word >> (3 * (group % 4)) & 7) * 2 + 1;
    }
    // In eighths.
    static int number(const Block& block, int element) {
        const int k = element / 8;
        const int nibble = block.upper[k / 2] >> (k % 2 * 4) & 15;
        const int index = block.points[k] | (nibble & 7) << 8;
        return 8 * iq1_number(iq1_grid()[index], element % 8) + ((nibble & 8) != 0 ? -1 : 1);
    }
    static const std::uint32_t* point_codes() { return codes_of_points<iq1_grid, 2048, 8, 3, 0, 2>(); }
    // Of values 8 k to 8 k + 7.
    static std::uint32_t eight_codes(const Block& block, int k, const std::uint32_t* points) {
        const int nibble = block.upper[k / 2] >> (k % 2 * 4) & 15;
        return iq1_codes(points[block.points[k] | (nibble & 7) << 8], (nibble & 8) != 0);
    }
};

}  // namespace foresay::kernels
