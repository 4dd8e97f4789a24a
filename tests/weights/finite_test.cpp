// NaN and infinities are found wherever a quantisation type can hold them.
#include "core/weights/finite.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

namespace foresay::core {
namespace {

using kernels::QuantType;

constexpr std::int64_t kRows = 5, kCols = 512;

std::vector<std::byte> encoded(QuantType quant_type) {
    std::vector<std::byte> bytes(static_cast<std::size_t>(kRows * kernels::row_bytes(quant_type, kCols)));
    std::vector<float> values(kCols);
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i)) * 1000.0f;
    for (std::int64_t row = 0; row < kRows; ++row) {
        const auto size = static_cast<std::size_t>(kernels::row_bytes(quant_type, kCols));
        kernels::quantize_row(quant_type, values, std::span(bytes).subspan(static_cast<std::size_t>(row) * size, size));
    }
    return bytes;
}

// Every value of two bytes, or four, is set to bits that mean no finite number: found exactly when
// dequantize_row() yields such a number.
TEST(Finite, FindsWhatDecodesToNoNumber) {
    for (int i = 0; i < kernels::kQuantTypes; ++i) {
        const auto quant_type = static_cast<QuantType>(i);
        const std::vector<std::byte> good = encoded(quant_type);
        const kernels::TensorView tensor{quant_type, kRows, kCols, good.data()};
        EXPECT_EQ(first_row_not_finite(tensor), -1) << kernels::info(quant_type).name;
        const std::int64_t row_bytes = kernels::row_bytes(quant_type, kCols);
        std::vector<float> values(kCols);
        for (std::int64_t at = 0; at + 2 <= row_bytes; at += 2) {
            for (const std::uint16_t bad : {0x7c00, 0xfc01, 0x7f80, 0xffff}) {
                std::vector<std::byte> bytes = good;
                std::memcpy(bytes.data() + 3 * row_bytes + at, &bad, sizeof bad);
                const kernels::TensorView changed{quant_type, kRows, kCols, bytes.data()};
                kernels::dequantize_row(changed, 3, values);
                bool finite = true;
                for (const float value : values) finite = finite && std::isfinite(value);
                const std::int64_t found = first_row_not_finite(changed);
                // An infinite scale is damage, even when all its codes are zero.
                if (!finite) {
                    EXPECT_EQ(found, 3) << kernels::info(quant_type).name << " byte " << at;
                }
                if (found >= 0) {
                    EXPECT_EQ(found, 3);
                }
                if (found >= 0 && quant_type < QuantType::q4_0) {
                    EXPECT_FALSE(finite);
                }
            }
        }
    }
}

// 255 is NaN, 254 a power of two under which codes overflow; zeros or not.
TEST(Finite, ExponentsOfMxfp4) {
    std::vector<std::byte> bytes(4 * 17);
    const kernels::TensorView tensor{QuantType::mxfp4, 2, 64, bytes.data()};
    for (const auto& [exponent, row] : {std::pair{0, -1}, {253, -1}, {254, 1}, {255, 1}}) {
        bytes[2 * 17] = static_cast<std::byte>(exponent);
        EXPECT_EQ(first_row_not_finite(tensor), row) << exponent;
    }
}

}  // namespace
}  // namespace foresay::core
