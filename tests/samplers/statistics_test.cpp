// Samples follow the distribution that the chain yields, and the test can fail: broken variants do.

#include <gtest/gtest.h>

#include <functional>

#include "kernels/noise.h"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

using Sampler = std::function<std::int32_t(std::vector<float> row, std::uint32_t index)>;

// Softmax in double.
std::vector<double> softmax(const std::vector<float>& logits, double temperature) {
    double top = -1e300, sum = 0.0;
    for (const float x : logits) top = std::max(top, static_cast<double>(x));
    std::vector<double> p;
    for (const float x : logits) {
        p.push_back(std::exp((x - top) / temperature));
        sum += p.back();
    }
    for (double& x : p) x /= sum;
    return p;
}

// The fewest best entries whose sum reaches `share`, renormalised.
std::vector<double> nucleus(std::vector<double> p, double share) {
    std::vector<double> sorted = p;
    std::sort(sorted.rbegin(), sorted.rend());
    double sum = 0.0, least = 0.0;
    for (const double x : sorted) {
        if (sum >= share) break;
        sum += x;
        least = x;
    }
    for (double& x : p) x = x >= least ? x / sum : 0.0;
    return p;
}

// Standardised chi-square of `samples` samples: (X2 - df) / sqrt(2 df); an impossible token counts as infinite.
double deviation(const Sampler& sampler, const std::vector<float>& row, const std::vector<double>& p, int samples) {
    std::vector<double> counts(p.size(), 0.0);
    for (int i = 0; i < samples; ++i) {
        const std::int32_t token = sampler(row, static_cast<std::uint32_t>(i));
        if (token < 0 || static_cast<std::size_t>(token) >= p.size() || p[static_cast<std::size_t>(token)] <= 0.0)
            return 1e9;
        counts[static_cast<std::size_t>(token)] += 1.0;
    }
    double square = 0.0, rest_want = 0.0, rest_got = 0.0;
    int cells = 0;
    for (std::size_t i = 0; i < p.size(); ++i) {
        const double want = p[i] * samples;
        if (want < 10.0) {  // rare ones together
            rest_want += want;
            rest_got += counts[i];
            continue;
        }
        square += (counts[i] - want) * (counts[i] - want) / want;
        ++cells;
    }
    if (rest_want >= 5.0) {
        square += (rest_got - rest_want) * (rest_got - rest_want) / rest_want;
        ++cells;
    }
    if (cells < 2) return 0.0;  // one token only, and no other was sampled
    return (square - (cells - 1)) / std::sqrt(2.0 * (cells - 1));
}

constexpr double kLimit = 5.0;    // standard deviations; seeds are fixed, so this never flickers
constexpr int kSamples = 200000;  // fewer would not tell the broken variants below from the right one

// A chain as a sampler: a generation per token would be slow, so the index moves by accepting.
Sampler chain_sampler(std::shared_ptr<Chain> chain) {
    return [chain](std::vector<float> row, std::uint32_t) {
        const std::int32_t token = chain->decide(row).token;
        chain->accept(token);
        return token;
    };
}

std::vector<float> test_row() {
    // Opposites of probability far apart in id, and a tail.
    std::mt19937 random(11);
    std::normal_distribution<float> bell(0.0f, 1.5f);
    std::vector<float> row(48);
    for (float& x : row) x = bell(random);
    return row;
}

TEST(Statistics, SamplesFollowSoftmax) {
    const LetterVocabulary vocabulary(48);
    const std::vector<float> row = test_row();
    for (const double t : {0.3, 0.6, 1.0, 1.7}) {
        auto chain = std::make_shared<Chain>(ChainSpec{{"temperature", {{"value", t}}}}, vocabulary);
        chain->begin(17, 4, {});
        EXPECT_LT(deviation(chain_sampler(chain), row, softmax(row, t), kSamples), kLimit) << "temperature " << t;
    }
}

TEST(Statistics, SamplesFollowTheNucleus) {
    const LetterVocabulary vocabulary(48);
    const std::vector<float> row = test_row();
    for (const double p : {0.5, 0.9, 0.99}) {
        for (const double t : {0.5, 1.0}) {
            // Temperature first: the nucleus is that of the scaled distribution.
            auto chain =
                std::make_shared<Chain>(ChainSpec{{"temperature", {{"value", t}}}, {"top_p", {{"p", p}}}}, vocabulary);
            chain->begin(18, 0, {});
            EXPECT_LT(deviation(chain_sampler(chain), row, nucleus(softmax(row, t), p), kSamples), kLimit)
                << "temperature " << t << " top_p " << p;
        }
    }
}

// A wide row: most candidates are skipped by their bound, which must not show.
TEST(Statistics, WideRowsFollowSoftmax) {
    std::mt19937 random(12);
    std::normal_distribution<float> bell(0.0f, 2.0f);
    std::vector<float> row(2000);
    for (float& x : row) x = bell(random);
    kernels::SamplingScratch scratch;
    const Sampler sampler = [&](std::vector<float> copy, std::uint32_t index) {
        kernels::SamplingPlan plan;
        plan.key = {5, 5, index};
        return kernels::sample_row(copy, plan, scratch).token;
    };
    EXPECT_LT(deviation(sampler, row, softmax(row, 1.0), kSamples), kLimit);
}

// Samples at different indices, seeds and branches are independent: pairs follow the product.
TEST(Statistics, NeighboursAreIndependent) {
    const std::vector<float> row = {0.0f, 0.7f, -0.5f, 1.0f, 0.2f, -1.0f};
    const std::vector<double> p = softmax(row, 1.0);
    std::vector<double> pairs;
    for (const double a : p) {
        for (const double b : p) pairs.push_back(a * b);
    }
    kernels::SamplingScratch scratch;
    const auto sample = [&](kernels::NoiseKey key) {
        std::vector<float> copy = row;
        kernels::SamplingPlan plan;
        plan.key = key;
        return kernels::sample_row(copy, plan, scratch).token;
    };
    const std::vector<float> fake_row(pairs.size());
    const auto pair_of = [&](auto first, auto second) {
        return [&, first, second](std::vector<float>, std::uint32_t i) {
            return sample(first(i)) * 6 + sample(second(i));
        };
    };
    const auto here = [](std::uint32_t i) { return kernels::NoiseKey{1, 0, i}; };
    const auto next = [](std::uint32_t i) { return kernels::NoiseKey{1, 0, i + 1}; };
    const auto seed = [](std::uint32_t i) { return kernels::NoiseKey{2, 0, i}; };
    const auto branch = [](std::uint32_t i) { return kernels::NoiseKey{1, 1, i}; };
    EXPECT_LT(deviation(pair_of(here, next), fake_row, pairs, kSamples), kLimit);
    EXPECT_LT(deviation(pair_of(here, seed), fake_row, pairs, kSamples), kLimit);
    EXPECT_LT(deviation(pair_of(here, branch), fake_row, pairs, kSamples), kLimit);
    // Control: one noise for both.
    EXPECT_GT(deviation(pair_of(here, here), fake_row, pairs, kSamples), 100.0);
}

// Broken samplers must fail the test that the real one passes.
TEST(Statistics, BrokenVariantsFail) {
    const std::vector<float> row = test_row();
    const std::vector<double> p = softmax(row, 1.0);
    const auto with_noise = [&](auto noise) {
        return [noise](std::vector<float> x, std::uint32_t index) {
            std::int32_t best = 0;
            float top = -kInfinity;
            for (std::int32_t id = 0; id < static_cast<std::int32_t>(x.size()); ++id) {
                const float score = x[static_cast<std::size_t>(id)] + noise(kernels::NoiseKey{3, 0, index}, id);
                if (score > top) {
                    top = score;
                    best = id;
                }
            }
            return best;
        };
    };
    // The harness itself: right noise passes.
    EXPECT_LT(
        deviation(with_noise([](auto key, std::int32_t id) { return kernels::gumbel(key, id); }), row, p, kSamples),
        kLimit);
    // Noise 3 % too strong: a temperature of 1.03.
    EXPECT_GT(deviation(with_noise([](auto key, std::int32_t id) { return 1.03f * kernels::gumbel(key, id); }), row, p,
                        kSamples),
              kLimit);
    // One noise for two ids.
    EXPECT_GT(deviation(with_noise([](auto key, std::int32_t id) { return kernels::gumbel(key, id & ~1); }), row, p,
                        kSamples),
              kLimit);
    // A logarithm forgotten: exponential instead of Gumbel noise.
    EXPECT_GT(
        deviation(with_noise([](auto key, std::int32_t id) {
                      return kernels::math::exponential(kernels::fine_noise(key, id, kernels::coarse_noise(key, id)));
                  }),
                  row, p, kSamples),
        kLimit);
    // U of 8 bits.
    EXPECT_GT(
        deviation(with_noise([](auto key, std::int32_t id) {
                      return kernels::gumbel_of((static_cast<float>(kernels::coarse_noise(key, id)) + 0.5f) / 256.0f);
                  }),
                  row, p, kSamples),
        kLimit);
    // The nucleus without its border token.
    EXPECT_GT(deviation(with_noise([](auto key, std::int32_t id) { return kernels::gumbel(key, id); }), row,
                        nucleus(p, 0.9), kSamples),
              kLimit);
}

// Law 2 in its purest form: the same key and row give the same token, whatever was sampled before.
TEST(Statistics, NothingIsRemembered) {
    std::mt19937 random(13);
    kernels::SamplingScratch used;
    for (int round = 0; round < 200; ++round) {
        const std::vector<float> row = random_row(random, 700);
        kernels::SamplingPlan plan;
        plan.key = {random(), random(), static_cast<std::uint32_t>(random())};
        std::vector<float> a = row, b = row;
        kernels::SamplingScratch fresh;
        EXPECT_EQ(kernels::sample_row(a, plan, used).token, kernels::sample_row(b, plan, fresh).token);
    }
}

}  // namespace
}  // namespace foresay::samplers
