// Which vocabularies may pair, and the reasons given when they may not.
#include "core/text/vocabulary_match.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "support.h"

namespace foresay::core {
namespace {

template <class Change>
Tokenizer changed(Change change) {
    TokenizerData data = small_data({{"a", "b"}});
    change(data);
    return Tokenizer(data);
}

const auto kNothing = [](TokenizerData&) {};

TEST(VocabularyMatch, TheBundledPairAgrees) {
    const Tokenizer draft = Tokenizer::from_gguf(GgufFile::open(source_path("models/python-coder/draft-q8_0.gguf")));
    const VocabularyMatch match = compare_vocabularies(bundled(), draft);
    EXPECT_TRUE(match.compatible) << match.explanation;
    EXPECT_EQ(match.shared, 16384);
}

TEST(VocabularyMatch, TokensThatDifferAreNeverProposed) {
    const auto other = changed([](TokenizerData& d) { std::swap(d.tokens['x'], d.tokens['y']); });
    const VocabularyMatch match = compare_vocabularies(changed(kNothing), other);
    EXPECT_TRUE(match.compatible);
    EXPECT_EQ(match.first_difference, 'x');
    EXPECT_EQ(match.differing, 2);
    EXPECT_EQ(match.shared, 255);
    EXPECT_EQ(match.never_proposed, (std::vector<std::int32_t>{'x', 'y'}));
    EXPECT_EQ(match.explanation,
              "the vocabularies differ in 2 tokens, first at id 120: 'x' in the target, 'y' in the draft (257 and 257 "
              "tokens, 255 equal); 2 ids will never be proposed");
}

TEST(VocabularyMatch, RefusesAHopelessPairWithNumbers) {
    const auto shifted =
        changed([](TokenizerData& d) { std::rotate(d.tokens.begin(), d.tokens.begin() + 1, d.tokens.begin() + 200); });
    const VocabularyMatch match = compare_vocabularies(changed(kNothing), shifted);
    EXPECT_FALSE(match.compatible);
    EXPECT_EQ(
        match.explanation,
        "the vocabularies differ in 200 tokens, first at id 0: '\u0100' in the target, '\u0101' in the draft (257 "
        "and 257 tokens, 57 equal); a draft must use the target's tokenizer");
}

TEST(VocabularyMatch, TheSameBytesInAnotherSpellingAreEqual) {
    TokenizerData literal, escaped;
    literal.source = escaped.source = "small";
    literal.spelling = escaped.spelling = Spelling::literal;
    escaped.decoder.replacements = {{"\u2581", " "}};
    for (const char* token : {"a", "b", "c", "d"})
        for (TokenizerData* data : {&literal, &escaped}) add_token(*data, token, TokenType::normal);
    add_token(literal, "  ", TokenType::user_defined);
    add_token(escaped, "\u2581\u2581", TokenType::user_defined);
    EXPECT_EQ(compare_vocabularies(Tokenizer(literal), Tokenizer(escaped)).differing, 0);
}

TEST(VocabularyMatch, ToleratesAPaddedTail) {
    const auto padded = changed([](TokenizerData& d) {
        add_token(d, "[PAD257]", TokenType::unused);
        add_token(d, "", TokenType::unused);
        add_token(d, "<|reserved|>", TokenType::control);
    });
    EXPECT_TRUE(compare_vocabularies(changed(kNothing), padded).compatible);
    EXPECT_TRUE(compare_vocabularies(padded, changed(kNothing)).compatible);
    const auto otherwise = changed([](TokenizerData& d) {
        add_token(d, "", TokenType::unused);
        add_token(d, "<pad>", TokenType::unused);
    });
    EXPECT_TRUE(compare_vocabularies(padded, otherwise).compatible);
}

TEST(VocabularyMatch, ATailThatTextCanReachIsNeverProposed) {
    const auto longer = changed([](TokenizerData& d) {
        add_token(d, "tail", TokenType::normal);
        add_token(d, "<|reserved|>", TokenType::control);
    });
    const VocabularyMatch draft_longer = compare_vocabularies(changed(kNothing), longer);
    EXPECT_TRUE(draft_longer.compatible);
    EXPECT_TRUE(draft_longer.never_proposed.empty()) << "not a token of the target";
    EXPECT_NE(draft_longer.explanation.find("id 257: nothing in the target, 'tail' in the draft"), std::string::npos);
    const VocabularyMatch target_longer = compare_vocabularies(longer, changed(kNothing));
    EXPECT_TRUE(target_longer.compatible);
    EXPECT_EQ(target_longer.never_proposed, (std::vector<std::int32_t>{257}));
    EXPECT_NE(target_longer.explanation.find("; 1 id will never be proposed"), std::string::npos);
}

// A draft may begin and end its texts otherwise: that makes its guesses worse, and nothing wrong.
TEST(VocabularyMatch, BeginningsAndEndsMayDiffer) {
    const auto with = [](std::int32_t bos, std::int32_t eos) {
        return changed([=](TokenizerData& d) { d.special.bos = bos, d.special.eos = eos; });
    };
    EXPECT_TRUE(compare_vocabularies(with(1, 2), with(1, 2)).compatible);
    EXPECT_TRUE(compare_vocabularies(with('a', 2), with('b', 3)).compatible);
}

}  // namespace
}  // namespace foresay::core
