// Which vocabularies may pair, and the reasons given when they may not.
#include "core/text/vocabulary_match.h"

#include <gtest/gtest.h>

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

TEST(VocabularyMatch, NamesTheFirstDifference) {
    const auto other = changed([](TokenizerData& d) { std::swap(d.tokens['x'], d.tokens['y']); });
    const VocabularyMatch match = compare_vocabularies(changed(kNothing), other);
    EXPECT_FALSE(match.compatible);
    EXPECT_EQ(match.first_difference, 'x');
    EXPECT_EQ(match.differing, 2);
    EXPECT_EQ(match.shared, 255);
    EXPECT_NE(match.explanation.find("first at id 120: 'x' in the target, 'y' in the draft"), std::string::npos)
        << match.explanation;
    EXPECT_NE(match.explanation.find("257 and 257 tokens"), std::string::npos);
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

TEST(VocabularyMatch, RefusesATailThatTextCanReach) {
    const auto longer = changed([](TokenizerData& d) { add_token(d, "tail", TokenType::normal); });
    const VocabularyMatch draft_longer = compare_vocabularies(changed(kNothing), longer);
    EXPECT_FALSE(draft_longer.compatible);
    EXPECT_NE(draft_longer.explanation.find("the target lacks token 257, 'tail'"), std::string::npos);
    const VocabularyMatch target_longer = compare_vocabularies(longer, changed(kNothing));
    EXPECT_FALSE(target_longer.compatible);
    EXPECT_NE(target_longer.explanation.find("the draft lacks token 257, 'tail'"), std::string::npos);
}

TEST(VocabularyMatch, BeginningsAndEnds) {
    const auto with = [](std::int32_t bos, std::int32_t eos) {
        return changed([=](TokenizerData& d) { d.special.bos = bos, d.special.eos = eos; });
    };
    EXPECT_TRUE(compare_vocabularies(with(1, 2), with(1, 2)).compatible);
    EXPECT_TRUE(compare_vocabularies(with(1, 2), with(-1, -1)).compatible);
    EXPECT_NE(compare_vocabularies(with('a', 2), with('b', 2)).explanation.find("begin with 'a'"), std::string::npos);
    EXPECT_NE(compare_vocabularies(with(1, 'a'), with(1, 'b')).explanation.find("end with 'a'"), std::string::npos);
    const auto base = changed([](TokenizerData& d) { d.special.eos = 'a'; });
    const auto tuned = changed([](TokenizerData& d) { d.special.eos = 'b', d.end_of_text = {'a'}; });
    EXPECT_TRUE(compare_vocabularies(tuned, base).compatible);
    EXPECT_FALSE(compare_vocabularies(with('a', 2), with('b', 2)).compatible);
}

}  // namespace
}  // namespace foresay::core
