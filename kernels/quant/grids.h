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
inline bool minus_of_seven(unsigned signs, int j) {
    return ((j < 7 ? signs >> j : static_cast<unsigned>(std::popcount(signs & 127u))) & 1u) != 0;
}

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
    template <class Block>
    static void pack(const Block& block, std::byte* out) {
        static constexpr std::array<std::uint8_t, 128> kPlaces = [] {
            std::array<std::uint8_t, 128> places{};
            for (std::size_t i = 0; i < Type::kNumbers.size(); ++i) {
                if (Type::kNumbers[i] != 0)
                    places[static_cast<std::size_t>(Type::kNumbers[i] + 64)] = static_cast<std::uint8_t>(i);
            }
            return places;
        }();
        out = put_bytes(out, Type::d(block) * Type::kUnit);
        for (int half = 0; half < 16; ++half) out = put_bytes(out, static_cast<std::int8_t>(Type::scale(block, half)));
        for (int begin = 0; begin < kElements; begin += kPackedGroup) {
            std::uint8_t codes[kPackedGroup];
            for (int i = 0; i < kPackedGroup; ++i) {
                codes[i] = kPlaces[static_cast<std::size_t>(Type::number(block, begin + i) + 64)];
            }
            out = put_codes(out, Type::kBits, codes);
        }
    }
};

}  // namespace foresay::kernels
