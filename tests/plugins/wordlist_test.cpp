// wordlist: no forbidden string in any text, however tokens fall; and nothing else is forbidden.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "plugins/host/plugin_host.h"
#include "samplers/chain.h"
#include "tests/plugins/support.h"

namespace foresay::plugins {
namespace {

// All strings of 1 to 3 letters over a small alphabet: texts can be cut into tokens in many ways.
class SmallAlphabet : public samplers::Vocabulary {
public:
    SmallAlphabet() {
        const std::string letters = "abAB ";
        texts_.push_back("");  // a control token
        for (const char x : letters) texts_.push_back({x});
        for (const char x : letters) {
            for (const char y : letters) texts_.push_back({x, y});
        }
        for (const char x : letters) {
            for (const char y : letters) {
                for (const char z : letters) texts_.push_back({x, y, z});
            }
        }
    }
    std::int32_t size() const override { return static_cast<std::int32_t>(texts_.size()); }
    std::string_view text(std::int32_t token) const override { return texts_[static_cast<std::size_t>(token)]; }
    std::int32_t find(std::string_view) const override { return -1; }

private:
    std::vector<std::string> texts_;
};

std::shared_ptr<const samplers::StageFactory> wordlist() {
    return PluginHost({{FORESAY_PLUGIN_FOLDER}, {}}).load("wordlist");
}

std::string lower(std::string text) {
    for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    return text;
}

TEST(Wordlist, ExactlyWhatWouldCompleteAForbiddenStringIsForbidden) {
    const SmallAlphabet vocabulary;
    std::mt19937 random(1);
    const std::vector<std::vector<std::string>> lists = {
        {"ab"}, {"aab", "ba b"}, {"abab", "bab", "a a"}, {"bbbbbb", "AbA"}, {"aaaaaaa"}, {" "}};
    for (int round = 0; round < 60; ++round) {
        const std::vector<std::string>& words = lists[static_cast<std::size_t>(round) % lists.size()];
        const bool ignore_case = round % 2 == 1;
        const auto norm = [&](const std::string& text) { return ignore_case ? lower(text) : text; };
        samplers::Chain chain({{"wordlist", {{"forbid", words}, {"ignore_case", ignore_case}}, wordlist()}},
                              vocabulary);
        // A prompt that may itself hold a forbidden string, or its beginning.
        std::vector<std::int32_t> history;
        std::string text;
        for (int i = 0; i < 4; ++i) history.push_back(static_cast<std::int32_t>(random() % 156));
        for (const std::int32_t token : history) text += vocabulary.text(token);
        chain.begin(random(), 0, history);
        for (int step = 0; step < 60; ++step) {
            // Ask about every single token: a row in which it alone stands out tells whether it is allowed.
            if (step % 10 == 0) {
                for (std::int32_t token = 0; token < vocabulary.size(); ++token) {
                    const std::string extended = norm(text + std::string(vocabulary.text(token)));
                    const bool completes = std::any_of(words.begin(), words.end(), [&](const std::string& word) {
                        const std::size_t from = text.size() + 1 > word.size() ? text.size() + 1 - word.size() : 0;
                        return extended.find(norm(word), from) != std::string::npos;
                    });
                    std::vector<float> row(static_cast<std::size_t>(vocabulary.size()), 0.0f);
                    row[static_cast<std::size_t>(token)] = 1000.0f;
                    ASSERT_EQ(chain.decide(row).token == token, !completes) << "'" << text << "' + token " << token;
                }
            }
            std::vector<float> row(static_cast<std::size_t>(vocabulary.size()));
            for (float& x : row) x = static_cast<float>(random() % 100) * 0.02f;
            const samplers::Decision decision = chain.decide(row);
            ASSERT_EQ(decision.failure, nullptr);
            text += vocabulary.text(decision.token);
            chain.accept(decision.token);
        }
    }
}

TEST(Wordlist, OptionsAreChecked) {
    const SmallAlphabet vocabulary;
    const auto message = [&](std::vector<std::string> words) {
        return error_of([&] { samplers::Chain chain({{"wordlist", {{"forbid", words}}, wordlist()}}, vocabulary); });
    };
    EXPECT_EQ(message({""}), "wordlist: 'forbid' lists an empty string, which is in every text");
    EXPECT_EQ(message({std::string(20000, 'x')}), "wordlist: 'forbid' holds more than 16384 bytes in all");
    EXPECT_EQ(message({}), "no error");
    EXPECT_EQ(
        error_of([&] {
            samplers::Chain chain({{"wordlist", {{"forbidd", std::vector<std::string>{"x"}}}, wordlist()}}, vocabulary);
        }),
        "sampler 'wordlist' has no parameter 'forbidd'; did you mean 'forbid'?");
}

TEST(Wordlist, AllForbiddenIsAFailureWithASentence) {
    const SmallAlphabet vocabulary;
    samplers::Chain chain({{"logit_bias",
                            {{"tokens", std::vector<std::int64_t>{0}},
                             {"values", std::vector<double>{-std::numeric_limits<double>::infinity()}}}},
                           {"wordlist", {{"forbid", std::vector<std::string>{"a", "b", "A", "B", " "}}}, wordlist()}},
                          vocabulary);
    chain.begin(0, 0, {});
    std::vector<float> row(static_cast<std::size_t>(vocabulary.size()), 0.0f);
    const samplers::Decision decision = chain.decide(row);
    ASSERT_NE(decision.failure, nullptr);
    EXPECT_EQ(decision.failure->message, "sampler 'wordlist' failed: it left no token");
}

}  // namespace
}  // namespace foresay::plugins
