// Each built-in sampler against a plain reference in double.

#include <gtest/gtest.h>

#include <map>

#include "kernels/noise.h"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

// What leaves the compiled chain on a row.
std::vector<Entry> leaving(const ChainSpec& spec, std::vector<float> row, const std::vector<std::int32_t>& history = {},
                           std::uint64_t seed = 0) {
    const LetterVocabulary vocabulary(static_cast<std::int32_t>(row.size()));
    Chain chain(spec, vocabulary);
    chain.begin(seed, 0, history);
    PlanBuffer buffer;
    EXPECT_EQ(chain.compile(buffer), nullptr);
    kernels::SamplingScratch scratch;
    return entries_of(kernels::candidates_row(row, buffer.plan, scratch));
}

double total(const std::vector<Entry>& entries) {
    double sum = 0.0;
    for (const Entry& entry : entries) sum += std::exp(static_cast<double>(entry.logit) - entries[0].logit);
    return sum;
}
double share(const Entry& entry, const std::vector<Entry>& entries) {
    return std::exp(static_cast<double>(entry.logit) - entries[0].logit) / total(entries);
}

TEST(Builtin, TopK) {
    std::mt19937 random(1);
    for (const std::int64_t k : {1, 5, 40, 512, 513, 100000}) {
        const std::vector<float> row = random_row(random, 3000);
        std::vector<Entry> want = sorted_entries(row, 3000);
        // A candidates stage sees 512 at most, whatever it would keep.
        want.resize(std::min<std::size_t>(want.size(), static_cast<std::size_t>(std::min<std::int64_t>(k, 512))));
        EXPECT_EQ(leaving({{"top_k", {{"k", k}}}}, row), want) << k;
    }
    const std::vector<float> row = random_row(random, 3000);
    EXPECT_EQ(leaving({{"top_k", {{"k", std::int64_t{0}}}}}, row), sorted_entries(row, 3000));  // off: keeps all
}

TEST(Builtin, TopP) {
    std::mt19937 random(2);
    for (int round = 0; round < 100; ++round) {
        const std::vector<float> row = random_row(random, 400);
        const double p = 0.05 + 0.009 * round;
        const std::vector<Entry> all = sorted_entries(row, 400);
        const std::vector<Entry> kept = leaving({{"top_p", {{"p", p}}}}, row);
        double sum = 0.0;
        for (const Entry& entry : kept) sum += share(entry, all);
        EXPECT_GE(sum, p - 1e-5);                                        // reaches p,
        EXPECT_LT(sum - share(kept.back(), all), p + 1e-5);              // not without its last,
        EXPECT_TRUE(std::equal(kept.begin(), kept.end(), all.begin()));  // and is a prefix of the best
    }
    const std::vector<float> row = random_row(random, 3000);
    EXPECT_EQ(leaving({{"top_p", {{"p", 1.0}}}}, row), sorted_entries(row, 3000));
    EXPECT_EQ(leaving({{"top_p", {{"p", 0.0}}}}, row).size(), 1u);
}

TEST(Builtin, MinP) {
    std::mt19937 random(3);
    for (int round = 0; round < 100; ++round) {
        const std::vector<float> row = random_row(random, 400);
        const double p = 0.005 + 0.0099 * round;
        const std::vector<Entry> all = sorted_entries(row, 400);
        const std::vector<Entry> kept = leaving({{"min_p", {{"p", p}}}}, row);
        for (std::size_t i = 0; i < all.size(); ++i) {
            const double ratio = std::exp(static_cast<double>(all[i].logit) - all[0].logit);
            if (ratio > p * 1.00001) {
                ASSERT_LT(i, kept.size());
            }
            if (ratio < p * 0.99999) {
                ASSERT_GE(i, kept.size());
            }
        }
    }
}

TEST(Builtin, Temperature) {
    std::mt19937 random(4);
    const std::vector<float> row = random_row(random, 400);
    std::vector<float> scaled = row;
    for (float& x : scaled) x /= 0.7f;
    EXPECT_EQ(leaving({{"temperature", {{"value", 0.7}}}}, row), sorted_entries(scaled, 400));
    EXPECT_EQ(leaving({{"temperature", {{"value", 0.0}}}}, row), sorted_entries(row, 400));
}

TEST(Builtin, TemperatureZeroDrawsTheBestOfWhatLeavesTheChain) {
    std::mt19937 random(5);
    const LetterVocabulary vocabulary(400);
    Chain chain({{"logit_bias", {{"tokens", std::vector<std::int64_t>{7}}, {"values", std::vector<double>{100.0}}}},
                 {"top_k", {}},
                 {"temperature", {{"value", std::int64_t{0}}}}},
                vocabulary);
    EXPECT_TRUE(chain.greedy());
    for (std::uint64_t seed = 0; seed < 20; ++seed) {
        chain.begin(seed, 0, {});
        std::vector<float> row(400, 1.0f);
        EXPECT_EQ(chain.decide(row).token, 7);
    }
}

TEST(Builtin, LogitBias) {
    std::mt19937 random(6);
    std::vector<float> row = random_row(random, 400);
    const ChainSpec spec = {
        {"logit_bias",
         {{"tokens", std::vector<std::int64_t>{399, 3, 200}}, {"values", std::vector<double>{2.5, -kInfinity, -1.0}}}}};
    std::vector<float> want = row;
    want[399] += 2.5f;
    want[3] = -kInfinity;
    want[200] -= 1.0f;
    EXPECT_EQ(leaving(spec, row), sorted_entries(want, 400));
}

TEST(Builtin, Penalties) {
    std::mt19937 random(7);
    for (int round = 0; round < 200; ++round) {
        const std::vector<float> row = random_row(random, 60);
        const std::int64_t window = static_cast<std::int64_t>(random() % 40 + 1);
        std::vector<std::int32_t> history(random() % 100);
        for (std::int32_t& token : history) token = static_cast<std::int32_t>(random() % 60);
        std::map<std::int32_t, int> counts;
        for (std::size_t i = history.size() - std::min<std::size_t>(history.size(), static_cast<std::size_t>(window));
             i < history.size(); ++i) {
            ++counts[history[i]];
        }
        std::vector<float> want = row;
        for (const auto& [token, count] : counts) {
            float& x = want[static_cast<std::size_t>(token)];
            x = x > 0.0f ? x / 1.3f : x * 1.3f;
            x = x - static_cast<float>(count) * 0.25f - 0.5f;
        }
        const ChainSpec spec = {
            {"penalties", {{"repeat", 1.3}, {"frequency", 0.25}, {"presence", 0.5}, {"window", window}}}};
        // The same whether the tokens came as history or one by one.
        EXPECT_EQ(leaving(spec, row, history), sorted_entries(want, 60));
        const LetterVocabulary vocabulary(60);
        Chain chain(spec, vocabulary);
        chain.begin(0, 0, {});
        for (const std::int32_t token : history) chain.accept(token);
        PlanBuffer buffer;
        chain.compile(buffer);
        kernels::SamplingScratch scratch;
        std::vector<float> copy = row;
        EXPECT_EQ(entries_of(kernels::candidates_row(copy, buffer.plan, scratch)), sorted_entries(want, 60));
    }
}

TEST(Builtin, Xtc) {
    std::mt19937 random(8);
    int acted = 0;
    constexpr int kRounds = 1000;
    for (int round = 0; round < kRounds; ++round) {
        const std::vector<float> row = random_row(random, 60);
        const std::vector<Entry> all = sorted_entries(row, 60);
        std::size_t likely = 0;
        while (likely < all.size() && share(all[likely], all) >= 0.05) ++likely;
        const std::vector<Entry> kept =
            leaving({{"xtc", {{"probability", 0.4}, {"threshold", 0.05}}}}, row, {}, static_cast<std::uint64_t>(round));
        if (kept == all) {
            acted += likely < 2 && random() % 10 < 4 ? 1 : 0;  // it cannot show on this row; count its share
            continue;
        }
        ++acted;
        ASSERT_GE(likely, 2u);
        ASSERT_EQ(kept, std::vector<Entry>(all.begin() + static_cast<std::ptrdiff_t>(likely) - 1, all.end()));
    }
    EXPECT_NEAR(acted, 0.4 * kRounds, 5.0 * std::sqrt(0.24 * kRounds));
}

TEST(Builtin, MirostatFollowsItsTarget) {
    const LetterVocabulary vocabulary(2000);
    for (const double tau : {2.0, 4.0, 6.0}) {
        std::mt19937 random(9);
        std::normal_distribution<float> bell(0.0f, 2.0f);
        Chain chain({{"mirostat", {{"tau", tau}, {"eta", 0.1}}}}, vocabulary);
        EXPECT_STREQ(chain.host_stage(), "mirostat");
        chain.begin(3, 0, {});
        double surprise = 0.0;
        float mu = static_cast<float>(2.0 * tau);
        constexpr int kTokens = 2000;
        for (int i = 0; i < kTokens; ++i) {
            std::vector<float> row(2000);
            for (float& x : row) x = bell(random);
            std::vector<Entry> entries = sorted_entries(row, 2000);
            entries.resize(512);
            // The reference: truncate by surprise, sample, measure in what was kept, move mu.
            std::vector<Entry> kept;
            for (const Entry& entry : entries) {
                if (kept.empty() || -std::log2(share(entry, entries)) <= mu) kept.push_back(entry);
            }
            const Decision decision = chain.decide(row);
            ASSERT_EQ(decision.failure, nullptr);
            const auto at =
                std::find_if(kept.begin(), kept.end(), [&](const Entry& e) { return e.id == decision.token; });
            ASSERT_NE(at, kept.end()) << "drew a token that the reference drops, at " << i;
            const double bits = -std::log2(share(*at, kept));
            mu -= 0.1f * static_cast<float>(bits - tau);
            surprise += bits;
            chain.accept(decision.token);
        }
        EXPECT_NEAR(surprise / kTokens, tau, 0.1) << tau;
    }
}

TEST(Builtin, ParametersAreChecked) {
    const LetterVocabulary vocabulary(10);
    const auto message = [&](const ChainSpec& spec) -> std::string {
        try {
            Chain chain(spec, vocabulary);
        } catch (const std::exception& error) {
            return error.what();
        }
        return "no error";
    };
    EXPECT_EQ(message({{"top_k", {{"kk", std::int64_t{3}}}}}),
              "sampler 'top_k' has no parameter 'kk'; did you mean 'k'?");
    EXPECT_EQ(message({{"top_k", {{"k", 3.5}}}}), "top_k.k must be an integer");
    EXPECT_EQ(message({{"top_p", {{"p", 1.5}}}}), "top_p.p is 1.5; it must be at most 1");
    EXPECT_EQ(message({{"top_p", {{"p", -1.0}}}}), "top_p.p is -1; it must be at least 0");
    EXPECT_EQ(message({{"top_p", {{"p", std::numeric_limits<double>::quiet_NaN()}}}}), "top_p.p is not a number");
    EXPECT_EQ(message({{"top_p", {}}, {"top_p", {}}}), "the chain lists sampler 'top_p' twice; list it once");
    EXPECT_EQ(message({{"topp", {}}}),
              "there is no sampler 'topp'; the built-in ones are grammar, logit_bias, min_length, no_repeat_ngram, "
              "penalties, dry, top_n_sigma, top_k, tfs, typical, top_p, top_a, min_p, epsilon_cutoff, eta_cutoff, xtc, "
              "temperature, dynatemp, smoothing, skew, mirostat, mirostat_1, adaptive_p; load others as plugins");
    EXPECT_EQ(
        message({{"logit_bias", {{"tokens", std::vector<std::int64_t>{10}}, {"values", std::vector<double>{1.0}}}}}),
        "logit_bias: token 10 does not exist; the vocabulary has 10 tokens");
    EXPECT_EQ(message({{"logit_bias", {{"tokens", std::vector<std::int64_t>{1}}}}}),
              "logit_bias: 'tokens' has 1 entries and 'values' has 0; give one value per token");
    EXPECT_EQ(message({{"logit_bias",
                        {{"tokens", std::vector<std::int64_t>{1, 1}}, {"values", std::vector<double>{1.0, 2.0}}}}}),
              "logit_bias: token 1 is listed twice; list it once");
    EXPECT_EQ(message({{"temperature", {{"value", std::int64_t{1}}}}}), "no error");  // an integer is a number, too
    EXPECT_EQ(message(ChainSpec(17, StageSpec{"top_p", {}, nullptr})),
              "a chain has at most 16 samplers, this one has 17");
}

}  // namespace
}  // namespace foresay::samplers
