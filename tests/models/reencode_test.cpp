// Tensors in another encoding: every row is what encoding its decoded values gives, whatever the threads did.
#include "core/models/reencode.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

namespace foresay::test {
namespace {

using kernels::Encoding;
using kernels::TensorView;

std::vector<std::byte> random_tensor(Encoding encoding, std::int64_t rows, std::int64_t cols) {
    std::mt19937 random(7);
    std::normal_distribution<float> bell;
    const auto row_bytes = static_cast<std::size_t>(kernels::row_bytes(encoding, cols));
    std::vector<std::byte> bytes(static_cast<std::size_t>(rows) * row_bytes);
    std::vector<float> row(static_cast<std::size_t>(cols));
    for (std::int64_t r = 0; r < rows; ++r) {
        for (float& value : row) value = bell(random);
        kernels::encode_row(encoding, row, {bytes.data() + static_cast<std::size_t>(r) * row_bytes, row_bytes});
    }
    return bytes;
}

TEST(Reencode, EveryRowIsItsDecodedValuesEncoded) {
    constexpr std::int64_t kCols = 256;
    for (const std::int64_t rows : {1, 2, 77, 300}) {
        const auto stored = random_tensor(Encoding::q8_0, rows, kCols);
        const TensorView from{Encoding::q8_0, rows, kCols, stored.data()};
        for (const Encoding encoding : {Encoding::q4_0, Encoding::q6_k}) {
            std::vector<std::byte> bytes;
            const TensorView to = core::reencode(from, encoding, bytes);
            ASSERT_EQ(to.rows, rows);
            ASSERT_EQ(to.cols, kCols);
            ASSERT_EQ(static_cast<std::size_t>(to.bytes()), bytes.size());
            const auto row_bytes = static_cast<std::size_t>(kernels::row_bytes(encoding, kCols));
            std::vector<float> row(kCols), back(kCols);
            std::vector<std::byte> expected(row_bytes);
            for (std::int64_t r = 0; r < rows; ++r) {
                kernels::decode_row(from, r, row);
                kernels::encode_row(encoding, row, expected);
                ASSERT_EQ(
                    std::memcmp(bytes.data() + static_cast<std::size_t>(r) * row_bytes, expected.data(), row_bytes), 0)
                    << "row " << r;
                kernels::decode_row(to, r, back);
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

TEST(Reencode, ShrinksOnlyWhatHasWholeBlocksAndGetsSmaller) {
    const std::byte byte{};
    EXPECT_TRUE(core::shrinks({Encoding::q8_0, 4, 256, &byte}, Encoding::q4_0));
    EXPECT_TRUE(core::shrinks({Encoding::q6_k, 4, 256, &byte}, Encoding::q4_0));
    EXPECT_TRUE(core::shrinks({Encoding::f16, 4, 96, &byte}, Encoding::q4_0));
    EXPECT_FALSE(core::shrinks({Encoding::f16, 4, 40, &byte}, Encoding::q4_0));
    EXPECT_FALSE(core::shrinks({Encoding::q4_0, 4, 256, &byte}, Encoding::q4_0));
    EXPECT_FALSE(core::shrinks({Encoding::q4_k, 4, 256, &byte}, Encoding::q4_0));
}

}  // namespace
}  // namespace foresay::test
