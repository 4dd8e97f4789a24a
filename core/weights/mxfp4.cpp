#include "core/weights/mxfp4.h"

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/q8_0.h"

namespace foresay::core {
namespace {

// Twice the number of each code.
constexpr std::int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// 2^(e - 128) is a float16 for these exponents.
constexpr int kLeastExponent = 128 - 24, kMostExponent = 128 + 15;

// Twice the numbers of a block, in order.
void unpack(const Mxfp4& matrix, const std::byte* codes, std::int8_t (&out)[kMxfp4Values]) {
    for (int j = 0; j < kMxfp4Bytes; ++j) {
        const auto byte = std::to_integer<unsigned>(codes[j]);
        out[matrix.neighbours ? 2 * j : j] = kTwice[byte & 15u];
        out[matrix.neighbours ? 2 * j + 1 : j + 16] = kTwice[byte >> 4];
    }
}

bool all_zero(const std::int8_t (&values)[kMxfp4Values]) {
    for (const std::int8_t value : values) {
        if (value != 0) return false;
    }
    return true;
}

}  // namespace

kernels::TensorView decode_mxfp4(const Mxfp4& matrix, std::int64_t first, std::int64_t step, std::int64_t rows,
                                 std::int64_t cols, std::vector<std::byte>& bytes, const std::string& name) {
    const std::int64_t blocks = cols / kMxfp4Values;
    const auto each = [&](const auto& body) {
        std::int8_t values[kMxfp4Values];
        for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t b = 0; b < blocks; ++b) {
                const std::int64_t at = (first + r * step) * blocks + b;
                unpack(matrix, matrix.codes + at * matrix.code_stride, values);
                body(r * blocks + b, std::to_integer<int>(matrix.exponents[at * matrix.exponent_stride]), values);
            }
        }
    };
    bool fits = true;
    each([&](std::int64_t, int exponent, const auto& values) {
        if (exponent == 255) throw Error(name + " holds NaN, so the file is damaged; get it again");
        if ((exponent < kLeastExponent || exponent > kMostExponent) && !all_zero(values)) fits = false;
    });
    if (fits) {
        using Block = kernels::Q8_0::Block;
        bytes.resize(static_cast<std::size_t>(rows * blocks) * sizeof(Block));
        auto* const out = reinterpret_cast<Block*>(bytes.data());
        each([&](std::int64_t i, int exponent, const auto& values) {
            const float scale = all_zero(values) ? 0.0f : std::ldexp(1.0f, exponent - 128);
            out[i].d = kernels::StoredF16::from_bits(kernels::f32_to_f16(scale));
            std::memcpy(out[i].codes, values, sizeof values);
        });
        return {kernels::QuantType::q8_0, rows, cols, bytes.data()};
    }
    bytes.resize(static_cast<std::size_t>(rows * cols) * sizeof(std::uint16_t));
    each([&](std::int64_t i, int exponent, const auto& values) {
        for (int j = 0; j < kMxfp4Values; ++j) {
            const float value = std::ldexp(static_cast<float>(values[j]), exponent - 128);
            std::uint32_t bits;
            std::memcpy(&bits, &value, sizeof bits);
            const auto half = static_cast<std::uint16_t>(bits >> 16);
            std::memcpy(bytes.data() + static_cast<std::size_t>(i * kMxfp4Values + j) * sizeof half, &half,
                        sizeof half);
        }
    });
    return {kernels::QuantType::bf16, rows, cols, bytes.data()};
}

}  // namespace foresay::core
