#include "kernels/noise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <vector>

namespace foresay::kernels {
namespace {

// Known answers of Philox4x32-10 from its authors' distribution.
TEST(Noise, PhiloxKnownAnswers) {
    const auto expect = [](const PhiloxBlock& got, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
        EXPECT_EQ(got.word[0], a);
        EXPECT_EQ(got.word[1], b);
        EXPECT_EQ(got.word[2], c);
        EXPECT_EQ(got.word[3], d);
    };
    expect(philox(0, 0, 0, 0, 0), 0x6627e8d5u, 0xe169c58du, 0xbc57ac4cu, 0x9b00dbd8u);
    expect(philox(~0u, ~0u, ~0u, ~0u, ~0ull), 0x408f276du, 0x41c83b0eu, 0xa20bc7c6u, 0x6d5451fdu);
    expect(philox(0x243f6a88u, 0x85a308d3u, 0x13198a2eu, 0x03707344u, 0x299f31d0a4093822ull), 0xd16cfe09u, 0x94fdccebu,
           0x5001e420u, 0x24126ea1u);
}

TEST(Noise, EveryPartOfTheKeyMatters) {
    const NoiseKey key{1, 2, 3};
    std::set<float> seen;
    seen.insert(gumbel(key, 4));
    seen.insert(gumbel(key, 5));
    seen.insert(gumbel({1, 2, 4}, 4));
    seen.insert(gumbel({1, 3, 3}, 4));
    seen.insert(gumbel({2, 2, 3}, 4));
    seen.insert(gumbel({1 + (1ull << 32), 2, 3}, 4));
    seen.insert(gumbel({1, 2 + (1ull << 32), 3}, 4));
    EXPECT_EQ(seen.size(), 7u);
}

TEST(Noise, StageNumbersHaveTheirOwnDomain) {
    const NoiseKey key{1, 2, 3};
    std::set<std::uint32_t> seen;
    for (std::uint32_t stage = 0; stage < 20; ++stage) {
        for (std::uint32_t counter = 0; counter < 20; ++counter) seen.insert(stage_random(key, stage, counter));
    }
    EXPECT_EQ(seen.size(), 400u);
    EXPECT_NE(stage_random(key, 7, 0), stage_random({1, 2, 4}, 7, 0));
    EXPECT_NE(stage_random(key, 7, 0), stage_random({2, 2, 3}, 7, 0));
}

// V must be uniform, also within its fine tail: every binary order of magnitude has its share.
TEST(Noise, TailIsUniformAndFine) {
    constexpr int kSamples = 1 << 21;
    std::vector<int> octave(65, 0);
    std::set<float> smallest;
    for (int i = 0; i < kSamples; ++i) {
        const NoiseKey key{9, 0, static_cast<std::uint32_t>(i >> 17)};
        const std::int32_t id = i & ((1 << 17) - 1);
        const float v = fine_noise(key, id, coarse_noise(key, id));
        ASSERT_GT(v, 0.0f);
        ASSERT_LT(v, 1.0f);
        ++octave[static_cast<std::size_t>(-std::ilogb(v))];
        if (v < 1e-3f) smallest.insert(v);
    }
    for (int o = 1; o <= 12; ++o) {
        const double want = std::ldexp(static_cast<double>(kSamples), -o);
        EXPECT_NEAR(octave[static_cast<std::size_t>(o)], want, 5.0 * std::sqrt(want)) << "octave " << o;
    }
    // About 2100 values below 1e-3. With 24-bit uniforms a hundred of them would tie.
    const double below = kSamples * 1e-3;
    EXPECT_GT(static_cast<double>(smallest.size()), below - 6.0 * std::sqrt(below));
}

// The whole vocabulary at once: the winner is decided by the tail, so no two large noises may be equal.
TEST(Noise, LargeNoisesDoNotTieOver128kIds) {
    for (std::uint32_t index = 0; index < 8; ++index) {
        std::multiset<float> large;
        for (std::int32_t id = 0; id < 131072; ++id) {
            const NoiseKey key{3, 0, index};
            const std::uint32_t coarse = coarse_noise(key, id);
            if (coarse == 0) large.insert(fine_noise(key, id, coarse));
        }
        EXPECT_GT(large.size(), 300u);
        EXPECT_EQ(std::set<float>(large.begin(), large.end()).size(), large.size());
    }
}

TEST(Noise, BoundsHold) {
    for (std::uint32_t coarse = 0; coarse < 256; ++coarse) {
        // The least V with this coarse byte has the largest G.
        const float least = coarse == 0 ? math::of_bits((127u - 64u) << 23) : static_cast<float>(coarse) / 256.0f;
        EXPECT_LE(gumbel_of(least), gumbel_bound(coarse));
        if (coarse > 0) {
            EXPECT_LE(gumbel_bound(coarse), kGumbelUsual);
        }
    }
    for (std::int32_t id = 0; id < 200000; ++id) {
        const NoiseKey key{77, 1, 5};
        const std::uint32_t coarse = coarse_noise(key, id);
        ASSERT_LE(gumbel_of(fine_noise(key, id, coarse)), gumbel_bound(coarse));
    }
}

TEST(Noise, GumbelHasItsMeanAndVariance) {
    double sum = 0.0, squares = 0.0;
    constexpr int kSamples = 1 << 20;
    for (int i = 0; i < kSamples; ++i) {
        const double g = gumbel({5, 6, static_cast<std::uint32_t>(i / 1024)}, i % 1024);
        sum += g;
        squares += g * g;
    }
    const double mean = sum / kSamples;
    EXPECT_NEAR(mean, 0.5772157, 0.006);
    EXPECT_NEAR(squares / kSamples - mean * mean, 1.6449341, 0.02);
}

// Recorded once: a change of the generator changes every text.
TEST(Noise, BitsAreFixed) {
    std::uint32_t sum = 0;
    for (std::int32_t id = 0; id < 1000; ++id) sum = sum * 31 + math::bits_of(gumbel({42, 7, 1234}, id * 131));
    for (std::uint32_t counter = 0; counter < 100; ++counter) sum = sum * 31 + stage_random({42, 7, 1234}, 99, counter);
    EXPECT_EQ(sum, 483619820u);
}

}  // namespace
}  // namespace foresay::kernels
