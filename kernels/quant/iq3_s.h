// kernels/quant/iq3_s.h: 3-bit points of a grid in groups of 32 with a 4-bit scale and all signs, eight groups to a
// block.
//
// Layout:   110 bytes for 256 values: f16 d; for each four values a byte of the index of a point; eight bytes of the
//           indices' ninth bits; a byte of signs for each eight values; four bytes of scales, the low half of the first
//           group.
//               value = d * (2 scale + 1) * number * sign           3.4375 bits per value
// Precision: exact in float32.
// Kernels:  packed: the places of the numbers in a table, in four bits, under the same scales. Q6_K holds them as well.
// Source:   GGUF type 21.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/grids.h"

namespace foresay::kernels {

struct IQ3_S : GridType<IQ3_S> {
    static constexpr const char* kName = "IQ3_S";
    static constexpr std::uint32_t kGgmlType = 21;

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
    static constexpr int kBits = 4;
    static constexpr std::array<std::int8_t, 16> kNumbers = {-15, -13, -11, -9, -7, -5, -3, -1,
                                                             1,   3,   5,   7,  9,  11, 13, 15};
    static constexpr QuantType kPlain = QuantType::q6_k;
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
    static const std::uint32_t* point_codes() { return codes_of_points<iq3_s_grid, 512, 4, 4, 8, 1>(); }
    // Of values 8 k to 8 k + 7.
    static std::uint32_t eight_codes(const Block& block, int k, const std::uint32_t* points) {
        const int ninth = block.ninth[k / 4] >> (2 * (k % 4));
        const std::uint32_t first = points[block.points[2 * k] | (ninth & 1) << 8];
        const std::uint32_t second = points[block.points[2 * k + 1] | (ninth & 2) << 7];
        return iq3_codes(first | second << 16, kSpread<4>[block.signs[k]]);
    }
};

}  // namespace foresay::kernels
