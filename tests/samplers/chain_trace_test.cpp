// What a trace says that stages did to a row, and what stages say that they have cost.
#include "samplers/chain_trace.h"

#include <gtest/gtest.h>

#include "kernels/noise.h"
#include "tests/samplers/judging_samplers.h"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

struct AllowsNothing {
    static constexpr Info info{"nothing", "1", "No token may follow.", "Apache-2.0"};
    explicit AllowsNothing(Host) {}
    bool test(const Context&, std::int32_t) const { return false; }
};

TEST(ChainTrace, ShowsEveryStageOfAChainByHand) {
    const LetterVocabulary vocabulary(5);
    Chain chain({{"logit_bias", {{"tokens", std::vector<std::int64_t>{0}}, {"values", std::vector<double>{5.5}}}},
                 {"top_k", {{"k", std::int64_t{3}}}},
                 {"temperature", {{"value", 2.0}}}},
                vocabulary);
    const std::vector<std::int32_t> history = {1, 2, 3};
    chain.begin(7, 1, history);
    std::vector<float> row = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f};
    const ChainTrace trace = chain.trace(row);
    ASSERT_EQ(trace.columns.size(), 4u);
    EXPECT_EQ(trace.columns[0].stage, "");
    EXPECT_EQ(trace.columns[0].logits, (std::vector<float>{0.0f, 1.0f, 2.0f, 3.0f, 4.0f}));
    EXPECT_EQ(trace.columns[1].stage, "logit_bias");
    EXPECT_EQ(trace.columns[1].logits, (std::vector<float>{5.5f, 1.0f, 2.0f, 3.0f, 4.0f}));
    EXPECT_EQ(trace.columns[2].stage, "top_k");
    EXPECT_EQ(trace.columns[2].logits, (std::vector<float>{5.5f, -kInfinity, -kInfinity, 3.0f, 4.0f}));
    EXPECT_EQ(trace.columns[3].stage, "temperature");
    EXPECT_EQ(trace.columns[3].logits, (std::vector<float>{2.75f, -kInfinity, -kInfinity, 1.5f, 2.0f}));
    // The noise is that of the seed, the branch and the place in the text.
    ASSERT_EQ(trace.noise.size(), 5u);
    std::int32_t best = 0;
    for (std::int32_t id = 0; id < 5; ++id) {
        const auto at = static_cast<std::size_t>(id), top = static_cast<std::size_t>(best);
        EXPECT_EQ(trace.noise[at], kernels::gumbel({7, 1, 3}, id));
        const std::vector<float>& last = trace.columns[3].logits;
        if (last[at] + trace.noise[at] > last[top] + trace.noise[top]) best = id;
    }
    EXPECT_EQ(trace.token, best);
    row = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f};
    EXPECT_EQ(chain.decide(row).token, best);
}

TEST(ChainTrace, ATemperatureOfZeroHasNoNoise) {
    const LetterVocabulary vocabulary(3);
    Chain chain({{"temperature", {{"value", 0.0}}}}, vocabulary);
    chain.begin(7, 0, {});
    std::vector<float> row = {0.0f, 2.0f, 1.0f};
    const ChainTrace trace = chain.trace(row);
    EXPECT_TRUE(trace.noise.empty());
    EXPECT_EQ(trace.token, 1);
    EXPECT_EQ(trace.margin, 1.0f);
}

// A test is asked about the winner alone when a token is decided, and about every candidate when a row is traced.
TEST(ChainTrace, HasTheTokenOfTheDecisionForEverySampler) {
    std::mt19937 random(3);
    const LetterVocabulary vocabulary(700);
    for (const auto& judge : {linked_factory<Tester>(), linked_factory<Masker>(), linked_factory<SoleMasker>(),
                              linked_factory<WholeDropper>(), linked_factory<Dropper>()}) {
        for (const std::int64_t k : {20, 0}) {
            const StageSpec rule{"rule", {}, judge}, cut{"top_k", {{"k", k}}}, warm{"temperature", {{"value", 0.8}}},
                nucleus{"top_p", {{"p", 0.9}}}, feedback{"mirostat", {}};
            for (const ChainSpec& spec :
                 {ChainSpec{rule, cut, nucleus, warm}, ChainSpec{cut, rule, warm, feedback}, ChainSpec{rule, warm}}) {
                Chain chain(spec, vocabulary);
                chain.begin(random(), 0, {});
                for (int step = 0; step < 6; ++step) {
                    const std::vector<float> row = random_row(random, 700);
                    std::vector<float> a = row, b = row, c = row;
                    const Decision decided = chain.decide(a);
                    const ChainTrace trace = chain.trace(b);
                    ASSERT_EQ(trace.token, decided.token) << judge->description().name << " " << k;
                    ASSERT_EQ(chain.decide(c).token, decided.token) << "a trace changes nothing";
                    ASSERT_EQ(trace.columns.front().logits.size(), 700u);
                    // What a stage has dropped does not come back, and the winner is never dropped.
                    for (std::size_t at = 1; at < trace.columns.size(); ++at) {
                        for (std::size_t id = 0; id < 700; ++id) {
                            if (trace.columns[at - 1].logits[id] > -kInfinity) continue;
                            ASSERT_EQ(trace.columns[at].logits[id], -kInfinity);
                        }
                        ASSERT_GT(trace.columns[at].logits[static_cast<std::size_t>(decided.token)], -kInfinity);
                    }
                    chain.accept(decided.token);
                }
            }
        }
    }
}

TEST(ChainTrace, ShowsWhatATestDropsInItsOwnColumn) {
    const LetterVocabulary vocabulary(100);
    Chain chain({{"tester", {}, linked_factory<Tester>()}, {"top_k", {{"k", std::int64_t{10}}}}}, vocabulary);
    const std::vector<std::int32_t> history = {12};  // no token of the same remainder may follow, except 0
    chain.begin(1, 0, history);
    std::vector<float> row(100);
    for (std::size_t id = 0; id < 100; ++id) row[id] = static_cast<float>(id) / 10.0f;
    const ChainTrace trace = chain.trace(row);
    ASSERT_EQ(trace.columns.size(), 3u);
    EXPECT_EQ(trace.columns[1].stage, "tester");
    int left = 0;
    for (std::size_t id = 0; id < 100; ++id) {
        const bool stays = trace.columns[1].logits[id] > -kInfinity;
        EXPECT_FALSE(stays && id % 5 == 2) << id;
        left += stays ? 1 : 0;
    }
    EXPECT_GT(left, 30);
    EXPECT_LT(left, 80);  // chance is against some
    EXPECT_EQ(std::ranges::count_if(trace.columns[2].logits, [](float logit) { return logit > -kInfinity; }), 10);
}

TEST(ChainTrace, SaysWhichStageWasLeftOutOrEndedTheAnswer) {
    const LetterVocabulary vocabulary(4);
    for (const auto policy : {StageSpec::OnError::skip, StageSpec::OnError::stop}) {
        Chain chain({{"nothing", {}, linked_factory<AllowsNothing>(), policy}, {"temperature", {{"value", 2.0}}}},
                    vocabulary);
        chain.begin(1, 0, {});
        std::vector<float> row = {0.0f, 1.0f, 2.0f, 3.0f};
        const ChainTrace trace = chain.trace(row);
        const bool skips = policy == StageSpec::OnError::skip;
        const ChainTrace::Column& failed = trace.columns[1];
        EXPECT_EQ(failed.stage, "nothing");
        EXPECT_NE(failed.failure.find("left no"), std::string::npos) << failed.failure;
        EXPECT_EQ(trace.columns.size(), skips ? 3u : 2u);
        EXPECT_EQ(trace.token >= 0, skips);
        if (!skips) continue;
        EXPECT_EQ(failed.logits, trace.columns[0].logits);
        EXPECT_EQ(trace.columns[2].failure, "");
    }
}

// The live stage and its copies in drafts are counted apart, and another chain of the same stages begins at nothing.
TEST(StageReports, CountTokensAndDrafts) {
    const LetterVocabulary vocabulary(300);
    const StageSpec sole{"sole", {}, linked_factory<SoleMasker>()};
    Chain chain({{"dropper", {}, linked_factory<Dropper>()}, sole, {"temperature", {{"value", 0.8}}}}, vocabulary);
    chain.begin(1, 0, {});
    std::mt19937 random(5);
    DraftChain draft;
    for (int step = 0; step < 5; ++step) {
        std::vector<float> row = random_row(random, 300);
        const std::int32_t token = chain.decide(row).token;
        chain.accept(token);
        if (step < 3) continue;
        draft.start(chain);
        for (int ahead = 0; ahead < 2; ++ahead) {
            std::vector<float> guess = random_row(random, 300);
            draft.advance(draft.propose(guess).token);
        }
    }
    const std::vector<StageReport> reports = chain.reports();
    ASSERT_EQ(reports.size(), 2u) << "temperature is a step, which costs next to nothing";
    EXPECT_EQ(reports[0].stage, "dropper");
    EXPECT_EQ(reports[0].tokens, 5);
    EXPECT_EQ(reports[0].calls, 5);
    EXPECT_EQ(reports[0].draft_calls, 4);
    EXPECT_GT(reports[0].total_ms, 0.0);
    EXPECT_GT(reports[0].draft_ms, 0.0);
    EXPECT_FALSE(reports[0].hidden);
    EXPECT_EQ(reports[1].calls, 5);
    EXPECT_EQ(reports[1].draft_calls, 0) << "its state cannot be copied";
    EXPECT_TRUE(reports[1].hidden);
    EXPECT_EQ(chain.duplicate()->reports()[0].tokens, 0);
    EXPECT_EQ(chain.duplicate()->reports()[0].draft_calls, 0);
}

}  // namespace
}  // namespace foresay::samplers
