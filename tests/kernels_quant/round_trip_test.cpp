// quantize_row then dequantize_row: the error stays within what the bits of each quantisation type allow, for many
// distributions.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "kernels/quant/f16.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {
namespace {

constexpr QuantType kAll[kQuantTypes] = {QuantType::f32,  QuantType::f16,  QuantType::bf16,
                                         QuantType::q4_0, QuantType::q8_0, QuantType::q4_k,
                                         QuantType::q5_k, QuantType::q6_k, QuantType::mxfp4};

struct Shape {
    const char* name;
    std::vector<float> (*make)(std::mt19937& random, std::size_t count);
};

template <class Distribution>
std::vector<float> random_values(std::mt19937& random, std::size_t count, Distribution distribution) {
    std::vector<float> values(count);
    for (float& value : values) value = distribution(random);
    return values;
}

const Shape kShapes[] = {
    {"normal",
     [](std::mt19937& r, std::size_t n) { return random_values(r, n, std::normal_distribution<float>(0.0f, 0.02f)); }},
    {"large",
     [](std::mt19937& r, std::size_t n) {
         return random_values(r, n, std::uniform_real_distribution<float>(-900.0f, 900.0f));
     }},
    {"positive", [](std::mt19937& r,
                    std::size_t n) { return random_values(r, n, std::uniform_real_distribution<float>(0.5f, 1.5f)); }},
    {"negative",
     [](std::mt19937& r, std::size_t n) {
         return random_values(r, n, std::uniform_real_distribution<float>(-3.0f, -2.0f));
     }},
    {"outliers",
     [](std::mt19937& r, std::size_t n) {
         auto values = random_values(r, n, std::normal_distribution<float>(0.0f, 0.02f));
         for (std::size_t i = 0; i < n; i += 37) values[i] *= 50.0f;
         return values;
     }},
    {"tiny",
     [](std::mt19937& r, std::size_t n) { return random_values(r, n, std::normal_distribution<float>(0.0f, 1e-6f)); }},
    {"zero", [](std::mt19937&, std::size_t n) { return std::vector<float>(n, 0.0f); }},
    {"constant", [](std::mt19937&, std::size_t n) { return std::vector<float>(n, -0.7f); }},
    {"one value",
     [](std::mt19937&, std::size_t n) {
         std::vector<float> values(n, 0.0f);
         values[n / 2] = 1.0f;
         return values;
     }},
};

float largest_magnitude(std::span<const float> values) {
    float largest = 0.0f;
    for (float value : values) largest = std::max(largest, std::fabs(value));
    return largest;
}

// A scale kept in f16 is at most one f16 step above the ideal one: a 1024th of it, or the subnormal step.
float stored(float scale) { return scale * (1.0f + 0x1p-10f) + 0x1p-24f; }

// The largest error that value `i` of `values` may show after quantisation: half a step (Q4_0: one step at the far
// end). A K-quant group's step is its own need plus one unit of the block's 6- or 8-bit scale of scales.
float error_bound(QuantType quant_type, std::span<const float> values, std::size_t i) {
    const auto group_of = [&](std::size_t size) { return values.subspan(i / size * size, size); };
    const auto block = group_of(static_cast<std::size_t>(info(quant_type).block_elements));
    const float value = std::fabs(values[i]);
    switch (quant_type) {
        case QuantType::f32:
            return 0.0f;
        case QuantType::f16:
            return std::max(value * 0x1p-11f, 0x1p-25f);
        case QuantType::bf16:
            return value * 0x1p-8f;
        case QuantType::q4_0:
            return stored(largest_magnitude(block) / 8.0f);
        case QuantType::q8_0:
            return stored(largest_magnitude(block) / 127.0f) / 2.0f * 1.0001f;
        case QuantType::q4_k:
        case QuantType::q5_k: {
            const float codes = quant_type == QuantType::q4_k ? 15.0f : 31.0f;
            float deepest = 0.0f;
            for (float v : block) deepest = std::max(deepest, -v);
            const float minimum_unit = stored(deepest / 63.0f);
            const auto need = [&](std::span<const float> group) {
                const auto [low, high] = std::minmax_element(group.begin(), group.end());
                return (std::max(*high, 0.0f) - std::min(*low, 0.0f) + minimum_unit) / codes;
            };
            float widest = 0.0f;
            for (std::size_t g = 0; g < 8; ++g) widest = std::max(widest, need(block.subspan(g * 32, 32)));
            return (need(group_of(32)) + stored(widest / 63.0f)) / 2.0f * 1.0001f;
        }
        case QuantType::mxfp4:  // the largest distance, that of 4 and 6, is at most a third of the largest number
            return largest_magnitude(block) / 3.0f * 1.0001f;
        case QuantType::q6_k: {
            const float need = largest_magnitude(group_of(16)) / 31.0f;
            return (need + stored(largest_magnitude(block) / 31.0f / 127.0f)) / 2.0f * 1.0001f;
        }
        case QuantType::packed:
            break;
    }
    return 0.0f;
}

std::vector<float> round_trip(QuantType quant_type, std::span<const float> values) {
    const auto cols = static_cast<std::int64_t>(values.size());
    std::vector<std::byte> bytes(static_cast<std::size_t>(row_bytes(quant_type, cols)));
    quantize_row(quant_type, values, bytes);
    std::vector<float> back(values.size());
    dequantize_row({quant_type, 1, cols, bytes.data()}, 0, back);
    return back;
}

TEST(RoundTrip, ErrorIsWithinTheBoundOfEachQuantType) {
    std::mt19937 random(7);
    for (QuantType quant_type : kAll) {
        for (const Shape& shape : kShapes) {
            for (int repeat = 0; repeat < 20; ++repeat) {
                const std::vector<float> values = shape.make(random, 1024);
                const std::vector<float> back = round_trip(quant_type, values);
                for (std::size_t i = 0; i < values.size(); ++i) {
                    ASSERT_LE(std::fabs(values[i] - back[i]), error_bound(quant_type, values, i))
                        << info(quant_type).name << " " << shape.name << " value " << values[i] << " became "
                        << back[i];
                }
            }
        }
    }
}

// The bound above is the worst case; this is what a weight matrix sees. Too small an error would mean that the test
// does not measure what it says, so both sides are checked.
TEST(RoundTrip, RelativeRootMeanSquareErrorMatchesTheBits) {
    std::mt19937 random(11);
    std::normal_distribution<float> normal(0.0f, 0.02f);
    std::vector<float> values(64 * 1024);
    for (float& value : values) value = normal(random);
    const auto relative_rms = [&](QuantType quant_type) {
        const std::vector<float> back = round_trip(quant_type, values);
        double error = 0.0, power = 0.0;
        for (std::size_t i = 0; i < values.size(); ++i) {
            error += std::pow(static_cast<double>(values[i]) - back[i], 2);
            power += std::pow(static_cast<double>(values[i]), 2);
        }
        return std::sqrt(error / power);
    };
    const auto expect_between = [&](QuantType quant_type, double low, double high) {
        const double rms = relative_rms(quant_type);
        EXPECT_GT(rms, low) << info(quant_type).name;
        EXPECT_LT(rms, high) << info(quant_type).name;
    };
    EXPECT_EQ(relative_rms(QuantType::f32), 0.0);
    expect_between(QuantType::f16, 1e-5, 5e-4);
    expect_between(QuantType::bf16, 5e-4, 4e-3);
    expect_between(QuantType::q4_0, 0.05, 0.12);
    expect_between(QuantType::q8_0, 0.003, 0.008);
    expect_between(QuantType::q4_k, 0.05, 0.10);
    expect_between(QuantType::q5_k, 0.025, 0.05);
    expect_between(QuantType::q6_k, 0.012, 0.024);
    expect_between(QuantType::mxfp4, 0.09, 0.16);
}

// Each row of a tensor is dequantised on its own, at any row index.
TEST(RoundTrip, RowsAreIndependentBlocks) {
    std::mt19937 random(3);
    std::normal_distribution<float> normal(0.0f, 1.0f);
    for (QuantType quant_type : kAll) {
        constexpr std::int64_t kCols = 512;
        std::vector<float> rows(3 * kCols);
        for (float& value : rows) value = normal(random);
        const auto stride = static_cast<std::size_t>(row_bytes(quant_type, kCols));
        std::vector<std::byte> bytes(3 * stride);
        for (std::size_t r = 0; r < 3; ++r) {
            quantize_row(quant_type, std::span(rows).subspan(r * kCols, kCols),
                         std::span(bytes).subspan(r * stride, stride));
        }
        const TensorView view{quant_type, 3, kCols, bytes.data()};
        EXPECT_EQ(view.bytes(), static_cast<std::int64_t>(bytes.size()));
        for (std::int64_t r = 0; r < 3; ++r) {
            std::vector<float> out(kCols);
            dequantize_row(view, r, out);
            EXPECT_EQ(out, round_trip(quant_type, std::span(rows).subspan(static_cast<std::size_t>(r * kCols), kCols)))
                << info(quant_type).name << " row " << r;
        }
    }
}

}  // namespace
}  // namespace foresay::kernels
