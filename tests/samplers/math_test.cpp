#include "kernels/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>

namespace foresay::kernels::math {
namespace {

// Distance from the true value in units of its last place.
double ulps(float got, double want) {
    if (std::isnan(want)) return std::isnan(got) ? 0.0 : 1e9;
    const float rounded = static_cast<float>(want);
    if (std::isinf(rounded) || rounded == 0.0f) return got == rounded ? 0.0 : 1e9;
    const int exponent = std::max(-126, std::ilogb(rounded));
    return std::fabs(static_cast<double>(got) - want) / std::ldexp(1.0, exponent - 23);
}

template <typename Mine, typename True>
double worst(std::uint32_t first, std::uint32_t last, std::uint32_t step, Mine mine, True truth) {
    double most = 0.0;
    for (std::uint64_t bits = first; bits <= last; bits += step) {
        const float x = of_bits(static_cast<std::uint32_t>(bits));
        most = std::max(most, ulps(mine(x), truth(static_cast<double>(x))));
    }
    return most;
}

double log_truth(double x) { return std::log(x); }
double exp_truth(double x) { return std::exp(x); }
double exponential_truth(double v) { return -std::log1p(-v); }

TEST(Math, LogIsAccurateEverywhere) {
    EXPECT_LT(worst(0x00000000u, 0x7f800000u, 6007, log, log_truth), 1.5);   // denormals and infinity included
    EXPECT_LT(worst(0x3f000000u, 0x3fffffffu, 37, log, log_truth), 1.5);     // around 1, where the result vanishes
    EXPECT_LT(worst(0x80000001u, 0xff800000u, 60007, log, log_truth), 0.1);  // negative: not a number
    EXPECT_EQ(log(-0.0f), -std::numeric_limits<float>::infinity());
    EXPECT_TRUE(std::isnan(log(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, ExpIsAccurateEverywhere) {
    EXPECT_LT(worst(0x00000000u, 0x7f800000u, 6007, exp, exp_truth), 1.5);
    EXPECT_LT(worst(0x3a000000u, 0x42b17217u, 997, exp, exp_truth), 1.5);
    EXPECT_LT(worst(0x80000000u, 0xff800000u, 6007, exp, exp_truth), 1.5);
    EXPECT_LT(worst(0xba000000u, 0xc2d00000u, 997, exp, exp_truth), 1.5);  // down to denormal results and 0
    EXPECT_TRUE(std::isnan(exp(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Math, ExponentialKeepsRelativePrecisionNearZero) {
    EXPECT_LT(worst(0x1f800000u, 0x3f7fffffu, 601, exponential, exponential_truth), 3.0);  // 2^-64 to 1
}

// The same bits on every machine: values recorded once.
TEST(Math, BitsAreFixed) {
    EXPECT_EQ(bits_of(log(2.0f)), 0x3f317218u);
    EXPECT_EQ(bits_of(exp(1.0f)), 0x402df854u);
    std::uint32_t sum = 0;
    for (std::uint32_t bits = 0x00000001u; bits < 0x7f800000u; bits += 65537)
        sum = sum * 31 + bits_of(log(of_bits(bits)));
    for (std::uint32_t bits = 0x00000001u; bits < 0x42b00000u; bits += 65537) {
        sum = sum * 31 + bits_of(exp(of_bits(bits))) + bits_of(exp(-of_bits(bits)));
    }
    EXPECT_EQ(sum, 1102508553u);
}

}  // namespace
}  // namespace foresay::kernels::math
