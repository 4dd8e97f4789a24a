#include "kernels/sampling.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kernels/sampling_simd.h"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

using kernels::SamplingPlan;
using kernels::SamplingScratch;
using kernels::SamplingStep;
using kernels::SamplingStepKind;

std::int32_t random_size(std::mt19937& random) {
    const std::int32_t sizes[] = {1, 2, 15, 16, 17, 255, 256, 257, 1000, 4096, 16384, 5003};
    return sizes[random() % std::size(sizes)];
}

TEST(Sampling, CutKeepsTheBestInOrder) {
    std::mt19937 random(1);
    SamplingScratch scratch;
    for (int round = 0; round < 400; ++round) {
        std::vector<float> row = random_row(random, random_size(random));
        const std::int32_t vocab = static_cast<std::int32_t>(row.size());
        std::vector<Entry> want = sorted_entries(row, vocab);
        const std::int32_t keep[] = {1, 2, 40, 512, 100000};
        const std::size_t cut = static_cast<std::size_t>(keep[random() % 5]);
        if (want.size() > cut) want.resize(cut);
        scratch.start(row, vocab);
        scratch.cut(static_cast<std::int32_t>(cut));
        ASSERT_EQ(entries_of(scratch.list()), want) << "round " << round;
    }
}

TEST(Sampling, WholeVocabularyEqualsTheDefinition) {
    std::mt19937 random(2);
    SamplingScratch scratch;
    for (int round = 0; round < 600; ++round) {
        std::vector<float> row = random_row(random, random_size(random));
        SamplingPlan plan;
        plan.key = {random(), random(), static_cast<std::uint32_t>(round)};
        plan.vocab = static_cast<std::int32_t>(row.size());
        plan.greedy = round % 5 == 0;
        const auto want = plain_sample(sorted_entries(row, plan.vocab), plan.key, plan.greedy);
        const auto got = kernels::sample_row(row, plan, scratch);
        ASSERT_EQ(got.token, want.token) << "round " << round;
        ASSERT_EQ(got.margin, want.margin) << "round " << round;
    }
}

TEST(Sampling, ListEqualsTheDefinition) {
    std::mt19937 random(3);
    SamplingScratch scratch;
    for (int round = 0; round < 400; ++round) {
        std::vector<float> row = random_row(random, random_size(random));
        SamplingPlan plan;
        plan.key = {random(), 0, static_cast<std::uint32_t>(round)};
        plan.cut = round % 2 ? 40 : 512;
        std::vector<Entry> entries = sorted_entries(row, static_cast<std::int32_t>(row.size()));
        if (entries.size() > static_cast<std::size_t>(plan.cut)) entries.resize(static_cast<std::size_t>(plan.cut));
        const auto want = plain_sample(entries, plan.key, false);
        const auto got = kernels::sample_row(row, plan, scratch);
        ASSERT_EQ(got.token, want.token);
        ASSERT_EQ(got.margin, want.margin);
    }
}

TEST(Sampling, IdsBeyondTheVocabularyAreNoCandidates) {
    std::vector<float> row(300, 0.0f);
    for (std::size_t id = 200; id < row.size(); ++id) row[id] = 50.0f;
    SamplingScratch scratch;
    for (std::uint32_t index = 0; index < 200; ++index) {
        for (const std::int32_t cut : {0, 40}) {
            SamplingPlan plan;
            plan.key.index = index;
            plan.vocab = 200;
            plan.cut = cut;
            std::vector<float> copy = row;
            EXPECT_LT(kernels::sample_row(copy, plan, scratch).token, 200);
        }
    }
}

TEST(Sampling, GreedyTiesGoToTheLowestId) {
    std::vector<float> row(1000, 1.0f);
    row[700] = row[300] = row[900] = 2.0f;
    SamplingPlan plan;
    plan.greedy = true;
    SamplingScratch scratch;
    const auto sampled = kernels::sample_row(row, plan, scratch);
    EXPECT_EQ(sampled.token, 300);
    EXPECT_EQ(sampled.margin, 0.0f);
}

TEST(Sampling, NothingLeftIsMinusOne) {
    SamplingScratch scratch;
    for (const float value : {-kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
        for (const std::int32_t cut : {0, 40}) {
            for (const bool greedy : {false, true}) {
                std::vector<float> row(500, value);
                SamplingPlan plan;
                plan.cut = cut;
                plan.greedy = greedy;
                EXPECT_EQ(kernels::sample_row(row, plan, scratch).token, -1);
            }
        }
    }
}

TEST(Sampling, InfiniteLogitsAreTheLargestFloat) {
    std::vector<float> row(500, 0.0f);
    row[77] = kInfinity;
    SamplingScratch scratch;
    for (const std::int32_t cut : {0, 40}) {
        std::vector<float> copy = row;
        SamplingPlan plan;
        plan.cut = cut;
        EXPECT_EQ(kernels::sample_row(copy, plan, scratch).token, 77);
    }
}

// Every instruction set computes the same bits.
TEST(Sampling, InstructionSetsAgree) {
    std::mt19937 random(4);
    const auto all = kernels::all_sampling_kernels();
    const auto& portable = all.back();
    ASSERT_STREQ(portable.isa, "portable");
    for (int round = 0; round < 60; ++round) {
        const std::vector<float> row = random_row(random, random_size(random));
        const std::int32_t n = static_cast<std::int32_t>(row.size());
        const kernels::NoiseKey key{random(), random(), static_cast<std::uint32_t>(random())};
        std::vector<Entry> entries = sorted_entries(row, n);
        std::vector<std::int32_t> ids;
        std::vector<float> logits;
        for (const Entry& entry : entries) {
            ids.push_back(entry.id);
            logits.push_back(entry.logit);
        }
        const std::int32_t count = static_cast<std::int32_t>(ids.size());
        struct Result {
            std::vector<float> lanes, divided;
            std::vector<std::uint64_t> keys, weights;
            kernels::BestTwo whole, list, best;
            std::uint64_t sum;
        };
        const auto run = [&](const kernels::SamplingKernels& kernels) {
            Result r;
            r.lanes.resize(static_cast<std::size_t>(kernels::lane_count(n)));
            kernels.lane_maxima(row.data(), n, r.lanes.data());
            r.keys.resize(static_cast<std::size_t>(n) + 1);
            r.keys.resize(
                static_cast<std::size_t>(kernels.collect(row.data(), n, r.lanes.data(), 1.0f, r.keys.data())));
            std::sort(r.keys.begin(), r.keys.end());
            r.divided = logits;
            kernels.divide(r.divided.data(), count, 0.7f);
            r.weights.resize(ids.size());
            r.sum = kernels.weigh(logits.data(), count, logits.empty() ? 0.0f : logits[0], r.weights.data());
            r.whole = kernels.sample_whole(row.data(), n, r.lanes.data(), -kInfinity, key);
            r.list = kernels.sample_list(ids.data(), logits.data(), count, key);
            r.best = kernels.best_whole(row.data(), n, r.lanes.data());
            return r;
        };
        const Result want = run(portable);
        for (const auto& kernels : all) {
            const Result got = run(kernels);
            SCOPED_TRACE(kernels.isa);
            ASSERT_EQ(std::memcmp(got.lanes.data(), want.lanes.data(), want.lanes.size() * 4), 0);
            ASSERT_EQ(got.keys, want.keys);
            ASSERT_EQ(std::memcmp(got.divided.data(), want.divided.data(), want.divided.size() * 4), 0);
            ASSERT_EQ(got.weights, want.weights);
            ASSERT_EQ(got.sum, want.sum);
            for (const auto& [a, b] :
                 {std::pair{got.whole, want.whole}, {got.list, want.list}, {got.best, want.best}}) {
                ASSERT_EQ(a.id, b.id);
                ASSERT_EQ(a.best, b.best);
                ASSERT_EQ(a.second, b.second);
            }
        }
    }
}

}  // namespace
}  // namespace foresay::samplers
