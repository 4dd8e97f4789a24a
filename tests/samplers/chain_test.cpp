#include "samplers/chain.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

// A random chain of built-in step stages in random order.
ChainSpec random_chain(std::mt19937& random, std::int32_t vocab) {
    const auto real = [&](double low, double high) {
        return std::uniform_real_distribution<double>(low, high)(random);
    };
    ChainSpec all;
    std::vector<std::int64_t> tokens;
    std::vector<double> values;
    for (std::int64_t token = static_cast<std::int64_t>(random() % 5); token < vocab;
         token += 1 + static_cast<std::int64_t>(random() % 300)) {
        tokens.push_back(token);
        values.push_back(random() % 8 == 0 ? -static_cast<double>(kInfinity) : real(-3.0, 3.0));
    }
    all.push_back({"logit_bias", {{"tokens", tokens}, {"values", values}}});
    all.push_back({"penalties",
                   {{"repeat", real(1.0, 1.5)},
                    {"frequency", real(-0.5, 0.5)},
                    {"presence", real(-0.5, 0.5)},
                    {"window", static_cast<std::int64_t>(random() % 100)}}});
    all.push_back({"top_k", {{"k", static_cast<std::int64_t>(random() % 700)}}});
    all.push_back({"top_p", {{"p", real(0.3, 1.0)}}});
    all.push_back({"min_p", {{"p", real(0.0, 0.2)}}});
    all.push_back({"xtc", {{"probability", 0.5}, {"threshold", real(0.01, 0.2)}}});
    all.push_back({"top_n_sigma", {{"n", real(0.2, 3.0)}}});
    all.push_back({"tfs", {{"z", real(0.1, 1.0)}}});
    all.push_back({"typical", {{"p", real(0.1, 1.0)}}});
    all.push_back({"top_a", {{"a", real(0.0, 0.9)}}});
    all.push_back({"epsilon_cutoff", {{"epsilon", real(0.0, 0.01)}}});
    all.push_back({"eta_cutoff", {{"eta", real(0.0, 0.01)}}});
    all.push_back({"dynatemp", {{"min", real(0.1, 1.0)}, {"max", real(1.0, 3.0)}, {"exponent", real(0.2, 3.0)}}});
    all.push_back({"smoothing", {{"factor", real(0.0, 1.0)}, {"curve", real(1.0, 3.0)}}});
    all.push_back({"temperature", {{"value", random() % 5 == 0 ? 0.0 : real(0.2, 2.0)}}});
    std::shuffle(all.begin(), all.end(), random);
    all.resize(random() % (all.size() + 1));
    return all;
}

TEST(Chain, CompiledPlanEqualsHost) {
    std::mt19937 random(1);
    PlanBuffer buffer;
    kernels::SamplingScratch scratch;
    for (int round = 0; round < 800; ++round) {
        const std::int32_t vocab = round % 6 == 0 ? 16384 : static_cast<std::int32_t>(random() % 2000 + 1);
        const LetterVocabulary vocabulary(vocab);
        Chain chain(random_chain(random, vocab), vocabulary);
        std::vector<std::int32_t> history(random() % 200);
        for (std::int32_t& token : history)
            token = static_cast<std::int32_t>(random() % static_cast<std::uint32_t>(vocab));
        chain.begin(random(), random() % 3, history);
        for (int step = 0; step < 4; ++step) {
            // Rows may be longer than the vocabulary: padded heads.
            const std::vector<float> row = random_row(random, vocab + static_cast<std::int32_t>(random() % 64));
            std::vector<float> a = row, b = row, c = row;
            const Decision host = chain.decide(a);
            ASSERT_EQ(chain.compile(buffer), nullptr);
            const kernels::SampledToken device = kernels::sample_row(b, buffer.plan, scratch);
            ASSERT_EQ(host.token, device.token) << "round " << round;
            ASSERT_EQ(host.margin, device.margin);
            ASSERT_LT(host.token, vocab);
            const Decision again = chain.decide(c);  // deciding changes nothing
            ASSERT_EQ(again.token, host.token);
            ASSERT_EQ(host.token < 0, host.failure != nullptr);
            chain.accept(host.token >= 0 ? host.token : 0);
        }
    }
}

// The cut that a leading top_k allows is an optimisation: spelled out, the chain samples the same.
TEST(Chain, SmallerCutChangesNothing) {
    std::mt19937 random(2);
    const LetterVocabulary vocabulary(5000);
    Chain chain({{"top_k", {}}, {"top_p", {{"p", 0.9}}}, {"temperature", {}}}, vocabulary);
    chain.begin(4, 0, {});
    kernels::SamplingScratch scratch;
    for (int i = 0; i < 300; ++i) {
        const std::vector<float> row = random_row(random, 5000);
        PlanBuffer buffer;
        chain.compile(buffer);
        ASSERT_EQ(buffer.plan.cut, 40);
        kernels::SamplingPlan plain = buffer.plan;
        plain.cut = 512;
        plain.cut_at = 0;
        plain.steps[0] = {.kind = kernels::SamplingStepKind::top_k, .top_k = 40};
        for (std::int32_t s = 0; s < buffer.plan.step_count; ++s) plain.steps[s + 1] = buffer.plan.steps[s];
        plain.step_count = buffer.plan.step_count + 1;
        std::vector<float> a = row, b = row;
        ASSERT_EQ(chain.decide(a).token, kernels::sample_row(b, plain, scratch).token);
        chain.accept(1);
    }
}

TEST(Chain, BeginMakesStateAFunctionOfTheHistory) {
    std::mt19937 random(3);
    const LetterVocabulary vocabulary(300);
    const ChainSpec spec = {{"penalties", {{"repeat", 1.4}, {"window", std::int64_t{20}}}},
                            {"mirostat", {}},
                            {"temperature", {{"value", 0.8}}}};
    Chain walked(spec, vocabulary);
    walked.begin(1, 0, {});
    std::vector<std::int32_t> history;
    for (int i = 0; i < 50; ++i) {
        std::vector<float> row = random_row(random, 300);
        const std::int32_t token = walked.decide(row).token;
        walked.accept(token);
        history.push_back(token);
    }
    // Starting again at the same place decides the same, whatever happened in between.
    for (const std::size_t length : {std::size_t{0}, std::size_t{7}, std::size_t{50}}) {
        const std::vector<std::int32_t> prefix(history.begin(), history.begin() + static_cast<std::ptrdiff_t>(length));
        Chain fresh(spec, vocabulary);
        fresh.begin(9, 2, prefix);
        walked.begin(9, 2, prefix);
        for (int i = 0; i < 20; ++i) {
            const std::vector<float> row = random_row(random, 300);
            std::vector<float> a = row, b = row;
            const std::int32_t token = fresh.decide(a).token;
            ASSERT_EQ(walked.decide(b).token, token);
            fresh.accept(token);
            walked.accept(token);
        }
        ASSERT_TRUE(std::ranges::equal(fresh.history(), walked.history()));
    }
}

// Clone, advance, drop: the live chain is not affected, and the draft sees what the live chain would see.
TEST(Chain, DraftsLeaveTheLiveChainUnchanged) {
    std::mt19937 random(4);
    const LetterVocabulary vocabulary(300);
    const ChainSpec specs[] = {
        {{"penalties", {{"repeat", 1.5}, {"frequency", 0.2}}}, {"top_k", {}}, {"temperature", {}}},
        {{"penalties", {{"presence", 1.0}}}, {"xtc", {{"probability", 0.5}}}, {"mirostat", {{"tau", 3.0}}}},
        {}};
    for (const ChainSpec& spec : specs) {
        Chain with(spec, vocabulary), without(spec, vocabulary);
        with.begin(5, 1, {});
        without.begin(5, 1, {});
        DraftChain draft;
        for (int round = 0; round < 60; ++round) {
            if (round == 30) {  // a new generation after another history
                const std::vector<std::int32_t> other = {1, 2, 3};
                with.begin(6, 0, other);
                without.begin(6, 0, other);
            }
            draft.start(with);
            std::vector<float> row = random_row(random, 300);
            std::vector<float> a = row, b = row, c = row;
            // With the same logits the draft proposes what the live chain decides.
            ASSERT_EQ(draft.propose(a).token, with.decide(b).token);
            for (int step = 0; step < static_cast<int>(random() % 6); ++step) {
                std::vector<float> ahead = random_row(random, 300);
                const std::int32_t token = draft.propose(ahead).token;
                draft.advance(token >= 0 ? token : 0);
            }
            const std::int32_t token = with.decide(row).token;
            ASSERT_EQ(without.decide(c).token, token);
            with.accept(token);
            without.accept(token);
        }
    }
}

// The draft, advanced along the tokens that are emitted later, agrees with the live chain at every step.
TEST(Chain, AdvancedDraftEqualsTheLiveChainLater) {
    std::mt19937 random(5);
    const LetterVocabulary vocabulary(300);
    Chain live({{"penalties", {{"repeat", 1.5}}}, {"top_p", {}}, {"temperature", {}}}, vocabulary);
    live.begin(8, 0, {});
    DraftChain draft;
    for (int round = 0; round < 40; ++round) {
        draft.start(live);
        for (int step = 0; step < 8; ++step) {
            const std::vector<float> row = random_row(random, 300);
            std::vector<float> a = row, b = row;
            const std::int32_t token = live.decide(a).token;
            ASSERT_EQ(draft.propose(b).token, token);
            live.accept(token);
            draft.advance(token);
        }
    }
}

TEST(Chain, NothingLeftIsAFailureWithASentence) {
    const LetterVocabulary vocabulary(10);
    Chain chain({}, vocabulary);
    chain.begin(0, 0, {});
    std::vector<float> row(10, std::numeric_limits<float>::quiet_NaN());
    const Decision decision = chain.decide(row);
    EXPECT_EQ(decision.token, -1);
    ASSERT_NE(decision.failure, nullptr);
    EXPECT_NE(decision.failure->message.find("no token can follow"), std::string::npos);
    std::vector<float> good(10, 0.0f);
    EXPECT_EQ(chain.decide(good).failure, nullptr);
}

TEST(Chain, SpecListsTheValuesInForce) {
    const LetterVocabulary vocabulary(10);
    const Chain chain({{"top_k", {{"k", std::int64_t{7}}}}, {"temperature", {}}}, vocabulary);
    const std::vector<StageSpec> spec = chain.spec();
    ASSERT_EQ(spec.size(), 2u);
    EXPECT_EQ(spec[0].name, "top_k");
    EXPECT_EQ(std::get<std::int64_t>(spec[0].parameters[0].second), 7);
    EXPECT_EQ(std::get<double>(spec[1].parameters[0].second), 0.6);
}

TEST(Chain, ParametersAreSetInAStageOrInOneThatIsAddedInItsPlace) {
    ChainSpec spec = {{"penalties", {}}, {"top_p", {{"p", 0.5}}}, {"temperature", {{"value", 1.0}}}};
    set_parameter(spec, "top_p", "p", 0.9);
    set_parameter(spec, "min_p", "p", 0.1);
    set_parameter(spec, "top_k", "k", std::int64_t{3});
    set_parameter(spec, "logit_bias", "tokens", std::vector<std::int64_t>{});
    set_parameter(spec, "temperature", "value", 0.0);
    std::string names;
    for (const StageSpec& stage : spec) names += stage.name + " ";
    EXPECT_EQ(names, "logit_bias penalties top_k top_p min_p temperature ");
    EXPECT_EQ(std::get<double>(spec[3].parameters.at(0).second), 0.9);
    EXPECT_EQ(spec[3].parameters.size(), 1u);
    ChainSpec none;
    set_parameter(none, "temperature", "value", 1.0);
    EXPECT_EQ(none.at(0).name, "temperature");
    EXPECT_THROW(set_parameter(spec, "no_such_stage", "p", 1.0), Error);
}

}  // namespace
}  // namespace foresay::samplers
