// The grammar stage: where the answer begins, where it may end, what a draft sees, and masks in flight.
#include <gtest/gtest.h>

#include <limits>

#include "base/error.h"
#include "samplers/chain.h"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

// 256 bytes, then: "ab", the control token <tool>, the end.
class ByteVocabulary : public Vocabulary {
public:
    static constexpr std::int32_t kPair = 256, kControl = 257, kEnd = 258;
    explicit ByteVocabulary(bool has_end = true) : has_end_(has_end) {
        for (int b = 0; b < 256; ++b) bytes_ += static_cast<char>(b);
    }
    std::int32_t size() const override { return 259; }
    std::string_view text(std::int32_t token) const override {
        if (token == kPair) return "ab";
        return token < 256 ? std::string_view(bytes_).substr(static_cast<std::size_t>(token), 1) : std::string_view();
    }
    std::int32_t find(std::string_view) const override { return -1; }
    bool ends_text(std::int32_t token) const override { return has_end_ && token == kEnd; }
    std::string_view control_text(std::int32_t token) const override { return token == kControl ? "<tool>" : ""; }

private:
    bool has_end_;
    std::string bytes_;
};

StageSpec grammar(const std::string& language, const std::string& text, Parameters more = {}) {
    more.emplace_back("language", language);
    more.emplace_back("text", text);
    return {"grammar", std::move(more)};
}

// Without noise.
ChainSpec greedy(StageSpec stage) { return {std::move(stage), {"temperature", {{"value", 0.0}}}}; }

std::vector<std::int32_t> tokens(std::string_view text) {
    std::vector<std::int32_t> ids;
    for (const char c : text) ids.push_back(static_cast<std::uint8_t>(c));
    return ids;
}

// What a chain writes when it likes tokens by falling id, up to the end.
std::string write(Chain& chain, std::size_t most = 100) {
    std::string text;
    for (std::size_t i = 0; i < most; ++i) {
        std::vector<float> row(259);
        for (std::size_t id = 0; id < row.size(); ++id) row[id] = -static_cast<float>(id);
        const Decision decision = chain.decide(row);
        if (decision.token < 0) return text + "!" + decision.failure->message;
        chain.accept(decision.token);
        if (decision.token == ByteVocabulary::kEnd) return text + "$";
        text += decision.token == ByteVocabulary::kPair ? "ab" : std::string(1, static_cast<char>(decision.token));
    }
    return text;
}

TEST(GrammarStage, BeginsWithTheAnswerAndNotWithThePrompt) {
    const ByteVocabulary vocabulary;
    Chain chain(greedy(grammar("regex", "x(b|a)c")), vocabulary);
    chain.begin(1, 0, tokens("a prompt that the grammar would refuse"));
    EXPECT_EQ(write(chain), "xac$");
    chain.begin(1, 0, {});
    EXPECT_EQ(write(chain), "xac$") << "without a prompt";
    chain.begin(1, 0, tokens("prompt: xb"), 0, 2);
    EXPECT_EQ(write(chain), "c$") << "the last two tokens belong to the answer";
    chain.begin(1, 0, tokens("xb"), 0, 2);
    EXPECT_EQ(write(chain), "c$") << "the answer begins at index 0";
}

TEST(GrammarStage, WhatTheAnswerIsMadeToBeginWithMayBreakIt) {
    const ByteVocabulary vocabulary;
    Chain chain(greedy(grammar("regex", "xa")), vocabulary);
    chain.begin(1, 0, tokens("prompt: y"), 0, 1);
    EXPECT_EQ(write(chain),
              "!sampler 'grammar' failed: the answer has token 121, which the grammar does not allow there");
}

TEST(GrammarStage, TheEndOfTheTextIsShownWithItsWhiteSpace) {
    const ByteVocabulary vocabulary;
    Chain chain({{"top_k", {{"k", std::int64_t{1}}}, nullptr}, grammar("regex", "a")}, vocabulary);
    chain.begin(1, 0, tokens("if x:\n\ty\x1b"));
    EXPECT_TRUE(write(chain).starts_with("!no token can follow after \"if x:\\n\\ty?\": ")) << write(chain);
}

TEST(GrammarStage, ReadsEveryLanguage) {
    const ByteVocabulary vocabulary;
    const auto text = [&](StageSpec spec) {
        Chain chain(greedy(std::move(spec)), vocabulary);
        chain.begin(0, 0, tokens("prompt"));
        return write(chain, 8);
    };
    EXPECT_EQ(text(grammar("choices", "yes\nno")), "no$");
    EXPECT_EQ(text(grammar("gbnf", "root ::= \"(\" root \")\" | \"+\"")), "((((((((");
    EXPECT_EQ(text(grammar("json", "", {{"whitespace", std::string("compact")}})), "\"       ");
    EXPECT_EQ(text(grammar("json_schema", R"({"enum":[[1,true]]})", {{"whitespace", std::string("compact")}})),
              "[1,true]");
    EXPECT_EQ(text(grammar("regex", "[0]{3}", {{"after", std::string("free")}})).substr(0, 4), std::string("000\0", 4));
    EXPECT_EQ(text(grammar("none", "")), std::string(8, '\0'));
}

TEST(GrammarStage, AControlTokenMayBeTheTrigger) {
    const ByteVocabulary vocabulary;
    Chain chain(greedy(grammar("regex", "z", {{"trigger", std::string("<tool>")}})), vocabulary);
    const std::vector<std::int32_t> history = {'p', ByteVocabulary::kControl};
    chain.begin(0, 0, history, 0, 1);
    EXPECT_EQ(write(chain), "z$");
    chain.begin(0, 0, tokens("p<tool>"));
    EXPECT_EQ(write(chain, 3), std::string(3, '\0')) << "in the prompt it is no trigger";
}

TEST(GrammarStage, ErrorsNameTheStage) {
    const ByteVocabulary vocabulary;
    const auto refused = [&](StageSpec spec, const Vocabulary& v) -> std::string {
        try {
            Chain chain({std::move(spec)}, v);
        } catch (const Error& error) {
            return error.what();
        }
        return {};
    };
    EXPECT_EQ(refused(grammar("json_schema", R"({"not":{}})"), vocabulary),
              "grammar: the schema cannot be used: \"not\" at # is not supported");
    EXPECT_NE(refused(grammar("regex", "a"), ByteVocabulary(false)).find("no token that ends a text"),
              std::string::npos);
    EXPECT_EQ(refused(grammar("regex", "a", {{"after", std::string("free")}}), ByteVocabulary(false)), "");
}

// A grammar that would do nothing, silently.
TEST(GrammarStage, AGrammarIsNeverIgnored) {
    const ByteVocabulary vocabulary;
    const auto refused = [&](Parameters parameters) -> std::string {
        try {
            Chain chain({{"grammar", std::move(parameters), nullptr}}, vocabulary);
        } catch (const StageError& error) {
            EXPECT_EQ(error.stage(), "grammar");
            return error.parameter() + ", " + error.what();
        }
        return {};
    };
    const std::string text = "abc", none, off = "none", json = "json";
    EXPECT_EQ(refused({{"text", text}}), "text, grammar: 'text' is stated, but not 'language', which says what it is");
    EXPECT_EQ(refused({{"file", text}}), "file, grammar: 'file' is stated, but not 'language', which says what it is");
    const std::string any = "grammar: the language \"json\" is any JSON and takes no ";
    EXPECT_EQ(refused({{"language", json}, {"text", text}}),
              "text, " + any + "'text'; for a schema write \"json_schema\"");
    EXPECT_EQ(refused({{"language", json}, {"file", text}}),
              "file, " + any + "'file'; for a schema write \"json_schema\"");
    EXPECT_EQ(refused({{"language", std::string("regex")}, {"file", std::string("/no/such")}}),
              "file, grammar.file: the file /no/such does not exist");
    // Switched off by name, and with nothing to ignore.
    EXPECT_EQ(refused({{"language", off}, {"text", text}}), "");
    EXPECT_EQ(refused({{"language", json}, {"text", none}}), "");
    EXPECT_EQ(refused({{"text", none}}), "");
}

// What a grammar may take by default is little; one's own may be allowed more.
TEST(GrammarStage, WhatTakesLongIsRefusedUnlessItIsAllowed) {
    const ByteVocabulary vocabulary;
    std::string words;
    for (int i = 0; i < 200'000; ++i) words += std::to_string(i * 7919ll % 1'000'003) + "\n";
    const auto compiles = [&](Parameters more) {
        try {
            Chain chain({grammar("choices", words, std::move(more))}, vocabulary);
            return std::string();
        } catch (const Error& error) {
            return std::string(error.what());
        }
    };
    EXPECT_EQ(compiles({{"most_work", std::int64_t{1}}}),
              "grammar: this grammar takes too long to compile; use fewer alternatives, or fewer or smaller "
              "repetitions");
    EXPECT_EQ(compiles({{"most_work", std::int64_t{20}}}), "");
    const auto& parameters = find_builtin("grammar")->description().parameters;
    EXPECT_EQ(std::get<std::int64_t>(parameters.back().fallback), 2) << "hostile_test.cpp says what that means";
}

// A draft follows guesses, also ones that the grammar does not allow, and leaves the live chain as it was. The masks of
// its plans stay as they are while others are made: a device reads them later.
TEST(GrammarStage, ADraftRunsAheadAlone) {
    const ByteVocabulary vocabulary;
    Chain chain(greedy(grammar("regex", "(ab|c){20}")), vocabulary);
    chain.begin(0, 0, tokens("prompt"));
    DraftChain draft;
    draft.start(chain);
    EXPECT_TRUE(draft.complete());
    std::vector<PlanBuffer> plans(40);
    std::vector<std::vector<std::uint32_t>> copies;
    for (std::size_t i = 0; i < plans.size(); ++i) {
        ASSERT_EQ(draft.compile(plans[i]), nullptr);
        ASSERT_EQ(plans[i].plan.steps[0].kind, kernels::SamplingStepKind::mask);
        const auto bits = plans[i].plan.steps[0].bits;
        copies.emplace_back(bits.begin(), bits.end());
        draft.advance(i % 2 == 0 ? 'a' : 'b');
    }
    for (std::size_t i = 0; i < plans.size(); ++i) {
        const auto bits = plans[i].plan.steps[0].bits;
        EXPECT_TRUE(std::equal(bits.begin(), bits.end(), copies[i].begin())) << i;
        EXPECT_EQ(copies[i]['c' / 32] >> ('c' % 32) & 1, i % 2 == 0 ? 1u : 0u) << i;
    }
    draft.start(chain);
    draft.advance('z');
    ASSERT_EQ(draft.compile(plans[0]), nullptr);
    EXPECT_EQ(plans[0].plan.steps[0].bits['z' / 32], ~0u) << "after a wrong guess anything may be drafted";
    EXPECT_EQ(write(chain, 2), "ab");
    draft.start(chain);
    std::vector<float> row(259, 0.0f);
    EXPECT_EQ(draft.propose(row).token, 'a');
}

}  // namespace
}  // namespace foresay::samplers
