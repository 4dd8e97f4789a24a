// Tensors in another quantisation type: every row is what quantising its dequantised values gives, with any
// number of threads.
#include "core/models/requantize.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace foresay::test {
namespace {

using kernels::QuantType;
using kernels::TensorView;

std::vector<std::byte> random_tensor(QuantType quant_type, std::int64_t rows, std::int64_t cols) {
    std::mt19937 random(7);
    std::normal_distribution<float> bell;
    const auto row_bytes = static_cast<std::size_t>(kernels::row_bytes(quant_type, cols));
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows) * row_bytes);
    std::vector<float> row(static_cast<std::size_t>(cols));
    for (std::int64_t r = 0; r < rows; ++r) {
        for (float& value : row) value = bell(random);
        kernels::quantize_row(quant_type, row, {bytes.data() + static_cast<std::size_t>(r) * row_bytes, row_bytes});
    }
    return bytes;
}

TEST(Requantize, EveryRowIsItsDecodedValuesEncoded) {
    constexpr std::int64_t kCols = 256;
    for (const std::int64_t rows : {1, 2, 77, 300}) {
        const auto stored = random_tensor(QuantType::q8_0, rows, kCols);
        const TensorView from{QuantType::q8_0, rows, kCols, stored.data()};
        for (const QuantType quant_type : {QuantType::q4_0, QuantType::q6_k}) {
            std::vector<std::byte> bytes;
            const TensorView to = core::requantize(from, quant_type, bytes);
            ASSERT_EQ(to.rows, rows);
            ASSERT_EQ(to.cols, kCols);
            ASSERT_EQ(static_cast<std::size_t>(to.bytes()), bytes.size());
            const auto row_bytes = static_cast<std::size_t>(kernels::row_bytes(quant_type, kCols));
            std::vector<float> row(kCols), back(kCols);
            std::vector<std::byte> expected(row_bytes);
            for (std::int64_t r = 0; r < rows; ++r) {
                kernels::dequantize_row(from, r, row);
                kernels::quantize_row(quant_type, row, expected);
                ASSERT_EQ(
                    std::memcmp(bytes.data() + static_cast<std::size_t>(r) * row_bytes, expected.data(), row_bytes), 0)
                    << "row " << r;
                kernels::dequantize_row(to, r, back);
                double error = 0.0, length = 0.0;
                for (std::size_t i = 0; i < row.size(); ++i) {
                    error += (row[i] - back[i]) * (row[i] - back[i]);
                    length += row[i] * row[i];
                }
                EXPECT_LT(std::sqrt(error / length), 0.12) << "row " << r;
            }
        }
    }
}

TEST(Requantize, ShrinksOnlyWhatHasWholeBlocksAndGetsSmaller) {
    const std::byte byte{};
    EXPECT_TRUE(core::shrinks({QuantType::q8_0, 4, 256, &byte}, QuantType::q4_0));
    EXPECT_TRUE(core::shrinks({QuantType::q6_k, 4, 256, &byte}, QuantType::q4_0));
    EXPECT_TRUE(core::shrinks({QuantType::f16, 4, 96, &byte}, QuantType::q4_0));
    EXPECT_FALSE(core::shrinks({QuantType::f16, 4, 40, &byte}, QuantType::q4_0));
    EXPECT_FALSE(core::shrinks({QuantType::q4_0, 4, 256, &byte}, QuantType::q4_0));
    EXPECT_FALSE(core::shrinks({QuantType::q4_k, 4, 256, &byte}, QuantType::q4_0));
}

}  // namespace
}  // namespace foresay::test
