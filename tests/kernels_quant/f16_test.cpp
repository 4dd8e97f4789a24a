// The 16-bit float conversions against the compiler's own _Float16, over every 16-bit pattern and around every rounding
// boundary.

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"

namespace foresay::kernels {
namespace {

float compiler_f16_to_f32(std::uint16_t bits) {
    _Float16 half;
    std::memcpy(&half, &bits, sizeof(half));
    return static_cast<float>(half);
}

std::uint16_t compiler_f32_to_f16(float value) {
    const auto half = static_cast<_Float16>(value);
    std::uint16_t bits;
    std::memcpy(&bits, &half, sizeof(bits));
    return bits;
}

TEST(F16, DecodesEveryPatternAsTheCompilerDoes) {
    for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const float ours = f16_to_f32(half);
        const float theirs = compiler_f16_to_f32(half);
        if (std::isnan(theirs)) {
            ASSERT_TRUE(std::isnan(ours)) << std::hex << bits;
            ASSERT_EQ(std::signbit(ours), (bits & 0x8000u) != 0) << std::hex << bits;
        } else {
            ASSERT_EQ(f32_bits(ours), f32_bits(theirs)) << std::hex << bits;
        }
    }
}

TEST(F16, RoundTripsEveryPattern) {
    for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const std::uint16_t back = f32_to_f16(f16_to_f32(half));
        const bool nan = (bits & 0x7fffu) > 0x7c00u;
        ASSERT_EQ(back, nan ? (half | 0x200u) : half) << std::hex << bits;
    }
}

// Between two neighbouring f16 values: the midpoint, the floats beside it, and the floats beside the ends.
TEST(F16, RoundsToNearestEvenAroundEveryBoundary) {
    for (std::uint32_t bits = 0; bits < 0x7c00u; ++bits) {
        const float low = f16_to_f32(static_cast<std::uint16_t>(bits));
        const float high = bits == 0x7bffu ? 65536.0f : f16_to_f32(static_cast<std::uint16_t>(bits + 1));
        const float middle = low + (high - low) / 2.0f;
        const float inf = std::numeric_limits<float>::infinity();
        for (float value : {std::nextafter(low, inf), std::nextafter(middle, -inf), middle, std::nextafter(middle, inf),
                            std::nextafter(high, -inf)}) {
            ASSERT_EQ(f32_to_f16(value), compiler_f32_to_f16(value)) << value;
            ASSERT_EQ(f32_to_f16(-value), compiler_f32_to_f16(-value)) << -value;
        }
    }
}

TEST(F16, AgreesWithTheCompilerOverAllExponents) {
    std::uint32_t state = 1;
    for (int i = 0; i < 2'000'000; ++i) {
        state = state * 1664525u + 1013904223u;
        const float value = f32_from_bits(state);
        if (std::isnan(value)) {
            ASSERT_GT(f32_to_f16(value) & 0x7fffu, 0x7c00u);
        } else {
            ASSERT_EQ(f32_to_f16(value), compiler_f32_to_f16(value)) << value;
        }
    }
}

TEST(Bf16, RoundTripsEveryPattern) {
    for (std::uint32_t bits = 0; bits <= 0xffffu; ++bits) {
        const auto half = static_cast<std::uint16_t>(bits);
        const bool nan = (bits & 0x7fffu) > 0x7f80u;
        ASSERT_EQ(f32_to_bf16(bf16_to_f32(half)), nan ? (half | 0x40u) : half) << std::hex << bits;
    }
}

TEST(Bf16, RoundsToNearestEven) {
    EXPECT_EQ(f32_to_bf16(f32_from_bits(0x3f808000u)), 0x3f80u);  // tie, even below
    EXPECT_EQ(f32_to_bf16(f32_from_bits(0x3f818000u)), 0x3f82u);  // tie, even above
    EXPECT_EQ(f32_to_bf16(f32_from_bits(0x3f808001u)), 0x3f81u);
    EXPECT_EQ(f32_to_bf16(f32_from_bits(0x3f807fffu)), 0x3f80u);
    EXPECT_EQ(f32_to_bf16(f32_from_bits(0x7f7fffffu)), 0x7f80u);  // the largest float32 rounds to infinity
    EXPECT_EQ(f32_to_bf16(f32_from_bits(0xff800000u)), 0xff80u);
    EXPECT_EQ(f32_to_bf16(f32_from_bits(0x7f800001u)), 0x7fc0u);  // a NaN stays one
    EXPECT_EQ(f32_to_bf16(f32_from_bits(0x00000001u)), 0x0000u);
}

}  // namespace
}  // namespace foresay::kernels
