// MXFP4 as Q8_0 or BF16: the same numbers.

#include "kernels/quant/widen.h"

#include <gtest/gtest.h>

#include <vector>

namespace foresay::kernels {
namespace {

// Three rows of two blocks; every code occurs. `exponents`: of the six blocks.
std::vector<std::byte> blocks_of(const std::vector<int>& exponents) {
    std::vector<std::byte> bytes;
    for (const int exponent : exponents) {
        bytes.push_back(static_cast<std::byte>(exponent));
        for (unsigned j = 0; j < 16; ++j) bytes.push_back(static_cast<std::byte>(j | (15 - j) << 4));
    }
    return bytes;
}

std::vector<float> values(const TensorView& view) {
    std::vector<float> out(static_cast<std::size_t>(view.elements()));
    for (std::int64_t r = 0; r < view.rows; ++r) {
        dequantize_row(view, r, std::span(out).subspan(static_cast<std::size_t>(r * view.cols), 64));
    }
    return out;
}

TEST(Widen, ScalesOfFloat16BecomeQ8_0) {
    const std::vector<std::byte> bytes = blocks_of({104, 143, 127, 120, 130, 128});
    const TensorView view{QuantType::mxfp4, 3, 64, bytes.data()};
    ASSERT_EQ(widened_type(view), QuantType::q8_0);
    std::vector<std::byte> storage;
    EXPECT_EQ(values(widen(view, QuantType::q8_0, storage)), values(view));
    EXPECT_EQ(values(widen(view, QuantType::bf16, storage)), values(view));
}

TEST(Widen, OtherScalesBecomeBf16) {
    for (const int exponent : {0, 1, 103, 144, 253}) {
        const std::vector<std::byte> bytes = blocks_of({127, 127, 127, 127, exponent, 127});
        const TensorView view{QuantType::mxfp4, 3, 64, bytes.data()};
        ASSERT_EQ(widened_type(view), QuantType::bf16) << exponent;
        std::vector<std::byte> storage;
        const TensorView wide = widen(view, QuantType::bf16, storage);
        EXPECT_EQ(wide.quant_type, QuantType::bf16);
        EXPECT_EQ(values(wide), values(view)) << exponent;
    }
}

// Zeros fit under any scale.
TEST(Widen, ScalesOfZerosDoNotCount) {
    std::vector<std::byte> bytes = blocks_of({127, 127, 127, 127, 0, 127});
    for (std::size_t i = 0; i < 16; ++i) bytes[4 * 17 + 1 + i] = static_cast<std::byte>(i % 2 == 0 ? 0x08 : 0x80);
    const TensorView view{QuantType::mxfp4, 3, 64, bytes.data()};
    ASSERT_EQ(widened_type(view), QuantType::q8_0);
    std::vector<std::byte> storage;
    EXPECT_EQ(values(widen(view, QuantType::q8_0, storage)), values(view));
}

TEST(Widen, OtherTypesStay) {
    EXPECT_EQ(widened_type({QuantType::q4_k, 1, 256, nullptr}), QuantType::q4_k);
    std::vector<std::byte> storage;
    const TensorView shape = widen({QuantType::mxfp4, 2, 64, nullptr}, QuantType::q8_0, storage);
    EXPECT_EQ(shape.data, nullptr);
    EXPECT_EQ(shape.rows, 2);
}

}  // namespace
}  // namespace foresay::kernels
