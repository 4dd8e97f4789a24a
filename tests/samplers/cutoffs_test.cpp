// The steps that look at probabilities, at the entropy or at the spread of the logits, against their definitions in
// plain float64, and the order in which a spread is summed.

#include "kernels/sampling_cutoffs.h"

#include <gtest/gtest.h>

#include <bit>
#include <cfloat>
#include <numeric>

#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

using namespace kernels;
using enum kernels::SamplingStepKind;

constexpr std::int32_t kVocabularies[] = {1, 2, 3, 17, 257, 32000, 128256};

// What is near a border may fall on either side of it.
constexpr double kNear = 1e-5;
bool is_near(double a, double b) { return std::abs(a - b) <= kNear * std::max(std::abs(a), std::abs(b)) + 1e-12; }

struct Distribution {
    std::vector<double> p, surprise;
    double entropy = 0.0;
    explicit Distribution(const std::vector<Entry>& list) {
        double sum = 0.0;
        for (const Entry& entry : list) {
            p.push_back(std::exp(static_cast<double>(entry.logit) - list[0].logit));
            sum += p.back();
        }
        for (std::size_t i = 0; i < list.size(); ++i) {
            surprise.push_back(list[0].logit - static_cast<double>(list[i].logit) + std::log(sum));
            p[i] /= sum;
            entropy += p[i] * surprise[i];
        }
    }
};

// The ids that a step keeps, by its definition; `sure` is false where one of them is decided by rounding.
std::vector<std::int32_t> kept_by_definition(const SamplingStep& step, const std::vector<Entry>& list, bool& sure) {
    const Distribution all(list);
    std::vector<std::int32_t> kept;
    const auto keep_probable = [&](double least) {
        for (std::size_t i = 0; i < list.size() && (i == 0 || all.p[i] >= least); ++i) kept.push_back(list[i].id);
        for (const double p : all.p) sure = sure && !is_near(p, least);
    };
    if (step.kind == top_a) {
        keep_probable(step.limit * all.p[0] * all.p[0]);
    } else if (step.kind == epsilon_cutoff) {
        keep_probable(step.limit);
    } else if (step.kind == eta_cutoff) {
        keep_probable(std::min(step.limit, std::sqrt(step.limit) * std::exp(-all.entropy)));
    } else if (step.kind == top_n_sigma) {
        double mean = 0.0, squares = 0.0;
        for (const Entry& entry : list) mean += static_cast<double>(entry.logit) / static_cast<double>(list.size());
        for (const Entry& entry : list) squares += (entry.logit - mean) * (entry.logit - mean);
        const double least = list[0].logit - step.limit * std::sqrt(squares / static_cast<double>(list.size()));
        for (const Entry& entry : list) {
            if (entry.logit >= least) kept.push_back(entry.id);
            sure = sure && (!is_near(entry.logit, least) || entry.logit == list[0].logit);
        }
    } else if (step.kind == tfs) {
        std::vector<double> bends;
        for (std::size_t i = 0; i + 2 < list.size(); ++i)
            bends.push_back(std::abs(all.p[i] - 2.0 * all.p[i + 1] + all.p[i + 2]));
        const double sum = std::accumulate(bends.begin(), bends.end(), 0.0);
        double reached = 0.0;
        std::size_t count = 0;
        for (const double one : bends) {
            reached += one / sum;
            count += reached <= step.limit ? 1 : 0;
            sure = sure && !is_near(reached, step.limit);
        }
        sure = sure && sum > 1e-6;
        for (std::size_t i = 0; i <= count; ++i) kept.push_back(list[i].id);
    } else {
        std::vector<std::size_t> order(list.size());
        std::iota(order.begin(), order.end(), 0u);
        const auto away = [&](std::size_t i) { return std::abs(all.surprise[i] - all.entropy); };
        std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return away(a) < away(b); });
        double reached = 0.0;
        std::size_t count = 0;
        while (count < order.size() && reached < step.limit) {
            reached += all.p[order[count++]];
            sure = sure && !is_near(reached, step.limit);
        }
        if (count < order.size()) {
            const double last = away(order[count - 1]), next = away(order[count]);
            sure = sure && (!is_near(last, next) || list[order[count - 1]].logit == list[order[count]].logit);
        }
        order.resize(count);
        std::sort(order.begin(), order.end());
        for (const std::size_t i : order) kept.push_back(list[i].id);
    }
    return kept;
}

TEST(Cutoffs, KeepWhatTheirDefinitionsKeep) {
    std::mt19937 random(31);
    SamplingScratch scratch;
    int compared = 0;
    for (int round = 0; round < 2000; ++round) {
        std::vector<float> row = random_row(random, round % 4 == 0 ? 1 + round % 40 : 800);
        const std::vector<Entry> best = [&] {
            auto all = sorted_entries(row, static_cast<std::int32_t>(row.size()));
            all.resize(std::min<std::size_t>(all.size(), kCandidateCut));
            return all;
        }();
        if (best.empty()) continue;
        const double unit = std::uniform_real_distribution<double>(0.001, 0.999)(random);
        for (const SamplingStep& step :
             std::initializer_list<SamplingStep>{{.kind = top_a, .limit = unit},
                                                 {.kind = epsilon_cutoff, .limit = 0.05 * unit},
                                                 {.kind = eta_cutoff, .limit = 0.01 * unit},
                                                 {.kind = top_n_sigma, .limit = 3.0 * unit},
                                                 {.kind = tfs, .limit = unit},
                                                 {.kind = typical, .limit = unit}}) {
            if (step.kind == tfs && best.size() < 3) continue;
            bool sure = true;
            const std::vector<std::int32_t> expected = kept_by_definition(step, best, sure);
            if (!sure) continue;
            ++compared;
            std::vector<float> copy = row;
            scratch.start(copy, 0);
            scratch.cut(kCandidateCut);
            scratch.apply(step, {});
            std::vector<std::int32_t> found;
            for (const Entry& entry : entries_of(scratch.list())) found.push_back(entry.id);
            ASSERT_EQ(found, expected) << "round " << round << ", kind " << static_cast<int>(step.kind);
        }
    }
    EXPECT_GT(compared, 8000);
}

TEST(Cutoffs, TheSpreadOfARowIsThatOfAllItsCandidates) {
    std::mt19937 random(32);
    SamplingScratch scratch;
    for (const std::int32_t vocab : kVocabularies) {
        for (int round = 0; round < 12; ++round) {
            const std::vector<float> row = random_row(random, vocab);
            const std::vector<Entry> list = sorted_entries(row, vocab);
            if (list.empty()) continue;
            const SamplingStep step{.kind = top_n_sigma, .limit = 0.25 * round};
            bool sure = true;
            std::vector<std::int32_t> expected = kept_by_definition(step, list, sure);
            if (!sure) continue;
            std::vector<float> copy = row;
            scratch.start(copy, vocab);
            scratch.apply(step, {});
            ASSERT_TRUE(scratch.whole());
            std::sort(expected.begin(), expected.end());
            std::vector<std::int32_t> found;
            for (std::int32_t id = 0; id < vocab; ++id) {
                const float left = copy[static_cast<std::size_t>(id)];
                if (!is_candidate(left)) continue;
                found.push_back(id);
                ASSERT_EQ(left, row[static_cast<std::size_t>(id)]);
            }
            ASSERT_EQ(found, expected) << vocab << " tokens, round " << round;
        }
    }
}

// Merges by an array of halves, as its comment says.
Moments merged_by_halves(const float* x, std::int32_t n, std::int32_t power) {
    if (power <= kMomentsGroup) return moments_of(x, std::min(n, power));
    const std::int32_t half = power / 2;
    const Moments first = merged_by_halves(x, std::min(n, half), half);
    return n > half ? merged(first, merged_by_halves(x + half, n - half, half)) : first;
}

TEST(Cutoffs, ASpreadIsSummedInOneOrder) {
    std::mt19937 random(33);
    for (const std::int32_t vocab : kVocabularies) {
        for (int round = 0; round < 8; ++round) {
            std::vector<float> row = random_row(random, vocab);
            if (round == 7) std::ranges::fill(row, 1e30f);
            MomentsTree groups;
            for (std::int32_t i = 0; i < vocab; i += kMomentsGroup)
                groups.add(moments_of(row.data() + i, std::min(kMomentsGroup, vocab - i)));
            const Moments found = groups.all();
            const Moments expected = merged_by_halves(row.data(), vocab, 1 << 18);
            ASSERT_EQ(found.count, expected.count);
            ASSERT_EQ(std::bit_cast<std::uint64_t>(found.mean), std::bit_cast<std::uint64_t>(expected.mean));
            ASSERT_EQ(std::bit_cast<std::uint64_t>(found.squares), std::bit_cast<std::uint64_t>(expected.squares));
            ASSERT_EQ(found.best, expected.best);
        }
    }
}

TEST(Cutoffs, NeutralMomentsChangeNothing) {
    const float row[] = {-kInfinity, 2.0f, std::numeric_limits<float>::quiet_NaN(), 5.0f};
    const Moments some = moments_of(row, 4), none = moments_of(row, 1);
    EXPECT_EQ(some.count, 2);
    EXPECT_EQ(some.best, 5.0f);
    EXPECT_EQ(some.mean, 3.5);
    EXPECT_EQ(some.squares, 4.5);
    EXPECT_EQ(none.count, 0);
    for (const Moments& m : {merged(some, none), merged(none, some)}) {
        EXPECT_EQ(m.count, 2);
        EXPECT_EQ(m.mean, 3.5);
        EXPECT_EQ(m.squares, 4.5);
    }
    EXPECT_EQ(merged(none, none).count, 0);
    EXPECT_EQ(least_within(2.0, some), 5.0 - 2.0 * std::sqrt(2.25));
    EXPECT_EQ(least_within(2.0, none), 0.0);
}

TEST(Cutoffs, ArithmeticIsThatOfTheFormulas) {
    // Weights of 2 and 1: probabilities of 2/3 and 1/3, and the second one's distance is log 2.
    const std::uint64_t one = std::uint64_t{1} << 40;
    const float half = static_cast<float>(std::log(0.5));
    const WeightSums sums{fixed_weight(0.0f, 0.0f) + fixed_weight(half, 0.0f),
                          weighed_distance(fixed_weight(half, 0.0f), half, 0.0f)};
    EXPECT_NEAR(expected_distance(sums), std::log(2.0) / 3.0, 1e-6);
    const double expected = -2.0 / 3.0 * std::log(2.0 / 3.0) - 1.0 / 3.0 * std::log(1.0 / 3.0);
    EXPECT_NEAR(entropy(sums), expected, 1e-6);
    EXPECT_EQ(weighed_distance(0, -FLT_MAX, FLT_MAX), 0u);
    EXPECT_EQ(bend(7, 4, 3), 2u);
    EXPECT_EQ(bend(4, 4, 1), 3u);
    EXPECT_EQ(bend(4, 3, 2), 0u);
    const DynamicTemperature range{.min = 0.5, .max = 2.5, .exponent = 2.0f};
    const double share = expected / std::log(2.0);
    EXPECT_NEAR(dynamic_temperature(range, 2, sums), 0.5 + 2.0 * share * share, 1e-5);
    EXPECT_EQ(dynamic_temperature(range, 1, {one, 0}), 1.0f);
    EXPECT_EQ(dynamic_temperature(range, 2, {one, 0}), 0.5f);  // all on one candidate
    const Smoothing curve{.factor = 0.5f, .square = 0.25f, .cube = 0.75f};
    EXPECT_EQ(smoothed(curve, 1.0f, 3.0f), 3.0f - 0.5f * (0.25f * 4.0f + 0.75f * 8.0f));
    EXPECT_EQ(smoothed(curve, -FLT_MAX, FLT_MAX), FLT_MAX);
    EXPECT_EQ(smoothed({.factor = 1.0f, .square = 0.0f, .cube = 1.0f}, -FLT_MAX, 3.0f), 3.0f - 1e4f);
    EXPECT_LT(typical_key(1.0f, 3.0f, 2.5, 9), typical_key(3.0f, 3.0f, 2.5, 0));
    EXPECT_LT(typical_key(1.0f, 3.0f, 2.5, 1), typical_key(0.0f, 3.0f, 2.5, 2));
    EXPECT_EQ(rank_of(typical_key(1.0f, 3.0f, 2.5, 9)), 9);
}

// Whatever the logits are, something stays where something was, and nothing becomes infinite or NaN.
TEST(Cutoffs, ExtremesLeaveSomething) {
    SamplingScratch scratch;
    const std::vector<std::vector<float>> rows = {{FLT_MAX, -FLT_MAX, 0.0f},
                                                  {kInfinity, kInfinity, 1.0f, -kInfinity},
                                                  {-FLT_MAX, -FLT_MAX, -FLT_MAX, -FLT_MAX},
                                                  {-1e-45f, 0.0f, 1e-45f},
                                                  {std::numeric_limits<float>::quiet_NaN(), -3e38f}};
    for (const std::vector<float>& row : rows) {
        for (int kind = static_cast<int>(xtc) + 1; kind <= static_cast<int>(smoothing); ++kind) {
            for (const double limit : {0.0, 1e-300, 0.5, 1.0, 100.0}) {
                const SamplingStep step{.kind = static_cast<SamplingStepKind>(kind),
                                        .limit = limit,
                                        .dynatemp = {.min = 0.01, .max = 10.0, .exponent = 10.0f},
                                        .smoothing = {.factor = 10.0f, .square = 0.0f, .cube = 1.0f}};
                for (const bool list : {false, true}) {
                    std::vector<float> copy = row;
                    scratch.start(copy, 0);
                    if (list) scratch.cut(kCandidateCut);
                    scratch.apply(step, {});
                    const Candidates left = scratch.list();
                    ASSERT_GT(left.count, 0) << "kind " << kind << ", limit " << limit;
                    for (std::int32_t i = 0; i < left.count; ++i) ASSERT_TRUE(std::isfinite(left.logits[i]));
                }
            }
        }
    }
}

}  // namespace
}  // namespace foresay::samplers
