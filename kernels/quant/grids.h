// kernels/quant/grids.h: the points of the grids that GGUF's IQ1, IQ2 and IQ3 types take their numbers from, and how
// these types become values.
//
// Layout:   a point of IQ1 and IQ2 is eight numbers, in two bits each from the lowest: their places in 8, 25, 43, or in
//           -1, 0, 1. One of IQ3 is four, in three bits each: in 4, 12, 20, 28, 36, 44, 52, 62, or in 1, 3, ... 15.
// Threads:  any; decoded at the first call.
// Source:   ggml-org/llama.cpp, ggml/src/ggml-common.h (MIT licence).
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "kernels/quant/code_stream.h"
#include "kernels/quant/packing.h"

namespace foresay::kernels {

const std::uint16_t* iq2_xxs_grid();  // 256 points
const std::uint16_t* iq2_xs_grid();   // 512
const std::uint16_t* iq2_s_grid();    // 1,024
const std::uint16_t* iq3_xxs_grid();  // 256
const std::uint16_t* iq3_s_grid();    // 512
const std::uint16_t* iq1_grid();      // 2,048

// Number j of a point.
inline int iq2_number(std::uint16_t point, int j) {
    constexpr int kNumbers[4] = {8, 25, 43, 0};
    return kNumbers[point >> (2 * j) & 3];
}
inline int iq3_xxs_number(std::uint16_t point, int j) {
    constexpr int kNumbers[8] = {4, 12, 20, 28, 36, 44, 52, 62};
    return kNumbers[point >> (3 * j) & 7];
}
inline int iq3_s_number(std::uint16_t point, int j) { return 2 * (point >> (3 * j) & 7) + 1; }
inline int iq1_number(std::uint16_t point, int j) { return (point >> (2 * j) & 3) - 1; }

// Whether number j of eight is negative: seven bits are given, and the eighth makes the count of signs even.
constexpr bool minus_of_seven(unsigned signs, int j) {
    return ((j < 7 ? signs >> j : static_cast<unsigned>(std::popcount(signs & 127u))) & 1u) != 0;
}

// Points as the codes of their numbers, as a stream of kBits each: code = kFirst + kStep * digit.
template <const std::uint16_t* (*kGrid)(), std::size_t kSize, int kDigits, int kBits, unsigned kFirst, unsigned kStep>
const std::uint32_t* codes_of_points() {
    constexpr int kDigitBits = kDigits == 8 ? 2 : 3;
    static const auto all = [] {
        const std::uint16_t* const points = kGrid();
        std::array<std::uint32_t, kSize> codes{};
        for (std::size_t i = 0; i < kSize; ++i) {
            for (int j = 0; j < kDigits; ++j) {
                const unsigned digit = points[i] >> (kDigitBits * j) & ((1u << kDigitBits) - 1u);
                codes[i] |= (kFirst + kStep * digit) << (kBits * j);
            }
        }
        return codes;
    }();
    return all.data();
}

// Bit j of a byte at place j of a stream of eight codes. kSevenSpread has the eighth bit that seven imply.
template <int kBits>
inline constexpr std::array<std::uint32_t, 256> kSpread = [] {
    std::array<std::uint32_t, 256> spread{};
    for (unsigned byte = 0; byte < 256; ++byte) {
        for (unsigned j = 0; j < 8; ++j) spread[byte] |= (byte >> j & 1u) << (kBits * j);
    }
    return spread;
}();
template <int kBits>
inline constexpr std::array<std::uint32_t, 128> kSevenSpread = [] {
    std::array<std::uint32_t, 128> spread{};
    for (unsigned seven = 0; seven < 128; ++seven) {
        for (int j = 0; j < 8; ++j) spread[seven] |= (minus_of_seven(seven, j) ? 1u : 0u) << (kBits * j);
    }
    return spread;
}();

// The codes of eight numbers of IQ2: places in -43, -25, -8, 8, 25, 43. `points` has those of positive ones, 3 to 5,
// and `minus` says by 0 and 1 which are negative: 5 less the place. No digit borrows from its neighbour.
inline std::uint32_t iq2_codes(std::uint32_t points, std::uint32_t minus) { return (points ^ 7 * minus) - 2 * minus; }
// Of IQ3, whose sixteen places mirror each other: positive ones are 8 to 15.
inline std::uint32_t iq3_codes(std::uint32_t points, std::uint32_t minus) { return points ^ 15 * minus; }
// Of IQ1: places in -9, -7, -1, 1, 7, 9. `points` has those under a negative shift, which are even.
inline std::uint32_t iq1_codes(std::uint32_t points, bool minus) { return points | (minus ? 0u : kSpread<3>[255]); }

// What all of these types share: 256 values, each d times a power of two times an integer scale times an integer.
// Every product is exact in float32, in any order.
template <class Type>
struct GridType {
    static constexpr int kElements = 256;

    template <class Block>
    static float dequantize(const Block& block, int element) {
        const float unit = Type::d(block) * Type::kUnit;
        return unit * static_cast<float>(Type::scale(block, element / 16) * Type::number(block, element));
    }
    // For types with a list of their numbers, in rising order; unused places are zero.
    static const Packing& packing() {
        constexpr std::uint8_t kBits = Type::kBits;
        static const Packing packing = [] {
            Packing made{.form = ScaleForm::k_table,
                         .kinds = {kBits | kHead, kBits, kBits, kBits, kBits, kBits, kBits, kBits},
                         .table = Type::kNumbers};
            if constexpr (requires { Type::kPlain; }) made.plain = Type::kPlain;
            return made;
        }();
        return packing;
    }
    // Eight values at a time: a point of the grid is their codes already, but for signs or the shift.
    template <class Block>
    static void pack(const Block& block, std::byte* out) {
        out = put_bytes(out, Type::d(block) * Type::kUnit);
        for (int half = 0; half < 16; ++half) out = put_bytes(out, static_cast<std::int8_t>(Type::scale(block, half)));
        const std::uint32_t* const points = Type::point_codes();
        for (int k = 0; k < kElements / 8; ++k, out += Type::kBits) {
            store_bytes<Type::kBits>(out, Type::eight_codes(block, k, points));
        }
    }
};

}  // namespace foresay::kernels
