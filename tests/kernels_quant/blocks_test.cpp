// Blocks built byte by byte from the documented bit layout, and their values, computed by hand. They pin the layout
// itself: a quantiser and a dequantiser that share a mistake would pass the round trip but not this.

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "kernels/quant/f16.h"
#include "kernels/quant/visit.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {
namespace {

constexpr std::uint16_t kOne = 0x3c00;      // 1.0
constexpr std::uint16_t kHalf = 0x3800;     // 0.5
constexpr std::uint16_t kQuarter = 0x3400;  // 0.25

using Bytes = std::vector<std::uint8_t>;

void put_f16(Bytes& bytes, std::size_t at, std::uint16_t half) {
    bytes[at] = static_cast<std::uint8_t>(half & 0xff);
    bytes[at + 1] = static_cast<std::uint8_t>(half >> 8);
}

// Dequantises one block as a row and checks that dequantising value by value agrees.
std::vector<float> dequantize(QuantType quant_type, const Bytes& bytes) {
    const QuantTypeInfo constants = info(quant_type);
    EXPECT_EQ(bytes.size(), static_cast<std::size_t>(constants.block_bytes));
    // One byte off any alignment that the allocator gives.
    std::vector<std::byte> shifted(bytes.size() + 1);
    std::memcpy(shifted.data() + 1, bytes.data(), bytes.size());
    const TensorView view{quant_type, 1, constants.block_elements, shifted.data() + 1};
    std::vector<float> values(static_cast<std::size_t>(constants.block_elements));
    dequantize_row(view, 0, values);
    visit_quant_type(quant_type, [&](auto q) {
        using Q = decltype(q);
        const auto& block = *reinterpret_cast<const typename Q::Block*>(shifted.data() + 1);
        for (int i = 0; i < Q::kElements; ++i)
            EXPECT_EQ(Q::dequantize(block, i), values[static_cast<std::size_t>(i)]) << i;
    });
    return values;
}

TEST(Blocks, PlainFloats) {
    EXPECT_EQ(dequantize(QuantType::f32, {0x00, 0x00, 0xc0, 0xbf})[0], -1.5f);
    EXPECT_EQ(dequantize(QuantType::f16, {0x00, 0xc1})[0], -2.5f);
    EXPECT_EQ(dequantize(QuantType::f16, {0x01, 0x00})[0], 0x1p-24f);
    EXPECT_EQ(dequantize(QuantType::bf16, {0x20, 0xc0})[0], -2.5f);
}

TEST(Blocks, Q4_0NibblesAreHalvesOfTheGroup) {
    Bytes bytes(18, 0x88);  // code 8 everywhere: zero
    put_f16(bytes, 0, kHalf);
    bytes[2 + 0] = 0xf0;  // value 0: code 0, value 16: code 15
    bytes[2 + 5] = 0x3a;  // value 5: code 10, value 21: code 3
    const auto values = dequantize(QuantType::q4_0, bytes);
    std::vector<float> expected(32, 0.0f);
    expected[0] = -4.0f;
    expected[16] = 3.5f;
    expected[5] = 1.0f;
    expected[21] = -2.5f;
    EXPECT_EQ(values, expected);
}

TEST(Blocks, MXFP4CodesAreFloatsTimesAPowerOfTwo) {
    const float numbers[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                               -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
    Bytes bytes(17);
    for (const int exponent : {0, 1, 2, 120, 127, 130, 253}) {
        bytes[0] = static_cast<std::uint8_t>(exponent);
        std::vector<float> expected(32);
        for (std::size_t j = 0; j < 16; ++j) {
            bytes[1 + j] = static_cast<std::uint8_t>(j | (15 - j) << 4);  // value j: code j, value j + 16: code 15 - j
            expected[j] = std::ldexp(numbers[j], exponent - 127);
            expected[j + 16] = std::ldexp(numbers[15 - j], exponent - 127);
        }
        EXPECT_EQ(dequantize(QuantType::mxfp4, bytes), expected) << exponent;
    }
}

TEST(Blocks, Q8_0CodesAreSignedBytesInOrder) {
    Bytes bytes(34, 0);
    put_f16(bytes, 0, kQuarter);
    bytes[2] = 0x80;
    bytes[2 + 1] = 0x7f;
    bytes[2 + 31] = 0xff;
    std::vector<float> expected(32, 0.0f);
    expected[0] = -32.0f;
    expected[1] = 31.75f;
    expected[31] = -0.25f;
    EXPECT_EQ(dequantize(QuantType::q8_0, bytes), expected);
}

// Group g gets scale 8g + 1 (1, 9, .., 57) and minimum 63 - 7g (63, 56, .., 14), packed by hand.
void put_k_scales(Bytes& bytes) {
    const std::array<int, 8> scale = {1, 9, 17, 25, 33, 41, 49, 57};
    const std::array<int, 8> minimum = {63, 56, 49, 42, 35, 28, 21, 14};
    for (std::size_t g = 0; g < 4; ++g) {
        bytes[4 + g] = static_cast<std::uint8_t>(scale[g] + 64 * (scale[g + 4] / 16));
        bytes[8 + g] = static_cast<std::uint8_t>(minimum[g] + 64 * (minimum[g + 4] / 16));
        bytes[12 + g] = static_cast<std::uint8_t>(scale[g + 4] % 16 + 16 * (minimum[g + 4] % 16));
    }
}

TEST(Blocks, Q4_K) {
    Bytes bytes(144, 0);
    put_f16(bytes, 0, kHalf);
    put_f16(bytes, 2, kQuarter);
    put_k_scales(bytes);
    bytes[16 + 3] = 0x5c;        // group 0 value 3: code 12; group 1 value 3: code 5
    bytes[16 + 96 + 31] = 0xf1;  // group 6 value 31: code 1; group 7 value 31: code 15
    const auto values = dequantize(QuantType::q4_k, bytes);
    for (int g = 0; g < 8; ++g) {
        const float scale = 0.5f * static_cast<float>(8 * g + 1);
        const float minimum = 0.25f * static_cast<float>(63 - 7 * g);
        for (int j = 0; j < 32; ++j) {
            int code = 0;
            if (g == 0 && j == 3) code = 12;
            if (g == 1 && j == 3) code = 5;
            if (g == 6 && j == 31) code = 1;
            if (g == 7 && j == 31) code = 15;
            EXPECT_EQ(values[static_cast<std::size_t>(g * 32 + j)], scale * static_cast<float>(code) - minimum)
                << g << " " << j;
        }
    }
}

TEST(Blocks, Q5_KTakesItsFifthBitFromTheBitOfItsGroup) {
    Bytes bytes(176, 0);
    put_f16(bytes, 0, kOne);
    put_f16(bytes, 2, kHalf);
    put_k_scales(bytes);
    bytes[16 + 7] = 0x81;       // value 7: fifth bit of groups 0 and 7
    bytes[48 + 7] = 0x2f;       // group 0 value 7: low 15; group 1 value 7: low 2
    bytes[48 + 96 + 7] = 0x90;  // group 7 value 7: low 9
    const auto values = dequantize(QuantType::q5_k, bytes);
    for (int g = 0; g < 8; ++g) {
        const float scale = static_cast<float>(8 * g + 1);
        const float minimum = 0.5f * static_cast<float>(63 - 7 * g);
        for (int j = 0; j < 32; ++j) {
            int code = 0;
            if (g == 0 && j == 7) code = 31;
            if (g == 1 && j == 7) code = 2;
            if (g == 7 && j == 7) code = 25;
            EXPECT_EQ(values[static_cast<std::size_t>(g * 32 + j)], scale * static_cast<float>(code) - minimum)
                << g << " " << j;
        }
    }
}

TEST(Blocks, Q6_KQuartersShareNibblesAndBitPairs) {
    Bytes bytes(210, 0);
    for (int g = 0; g < 16; ++g)
        bytes[static_cast<std::size_t>(192 + g)] = static_cast<std::uint8_t>(g - 8);  // scales -8 .. 7
    put_f16(bytes, 208, kQuarter);
    bytes[64 + 32 + 20] = 0x5b;   // half 1, value 20: quarter 1 low 11, quarter 3 low 5
    bytes[128 + 32 + 20] = 0x9c;  // half 1, value 20: pairs 0, 3, 1, 2 for quarters 0 .. 3
    const auto values = dequantize(QuantType::q6_k, bytes);
    for (int e = 0; e < 256; ++e) {
        int code = 0;
        if (e == 128 + 20) code = 0;
        if (e == 128 + 32 + 20) code = 3 * 16 + 11;
        if (e == 128 + 64 + 20) code = 1 * 16;
        if (e == 128 + 96 + 20) code = 2 * 16 + 5;
        const float scale = 0.25f * static_cast<float>(e / 16 - 8);
        EXPECT_EQ(values[static_cast<std::size_t>(e)], scale * static_cast<float>(code - 32)) << e;
    }
}

}  // namespace
}  // namespace foresay::kernels
