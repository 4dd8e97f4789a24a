// Regular expressions: the language against std::regex over all short texts, masks against a walk of each token.
#include <gtest/gtest.h>

#include <chrono>
#include <regex>
#include <set>

#include "base/error.h"
#include "tests/grammar/vocabulary.h"

namespace foresay::grammar {
namespace {

class AgainstEnumeration : public testing::TestWithParam<std::string> {};

// A prefix may be written exactly if some text that matches begins with it. The patterns are such that a match of at
// most 8 characters goes on from every prefix of at most 5.
TEST_P(AgainstEnumeration, PrefixesAndEndsAreRight) {
    const std::regex oracle(GetParam(), std::regex::ECMAScript);
    std::vector<std::string> texts = {""};
    std::set<std::string> prefixes;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].size() < 8) {
            for (const char c : {'a', 'b', '1'}) texts.push_back(texts[i] + c);
        }
        if (!std::regex_match(texts[i], oracle)) continue;
        for (std::size_t n = 0; n <= texts[i].size(); ++n) prefixes.insert(texts[i].substr(0, n));
    }
    const auto grammar = compile(Language::regex, GetParam());
    for (const std::string& text : texts) {
        if (text.size() > 5) break;
        State state = Grammar::begin(grammar);
        const bool alive = text.empty() || state.accept(text);
        ASSERT_EQ(alive, prefixes.count(text) == 1) << "'" << text << "'";
        ASSERT_EQ(alive && state.may_end(), std::regex_match(text, oracle)) << "'" << text << "'";
    }
}

INSTANTIATE_TEST_SUITE_P(Patterns, AgainstEnumeration,
                         testing::Values("a*", "a+b", "(a|b)*1", "(ab|a)(b1|1)?", "a{2,3}b{0,2}", "[^a]*a",
                                         "(a|b|ab)*1?", "((a|1)b?){2}", "\\d+", "\\w{3}", "[a1]?b*?", "(a*)*b",
                                         "(a|a)*", "(a?){3}a{2}", "(?:a|b1)+", ".b.", "^a|b$", "^(a|b)1$",
                                         "a\\x61\\u0062", "[\\d\\-b]+", "(a|(b|(1)))+", "\\D\\d", "\\S{1,2}",
                                         "[\\s\\S]{2}", "()a", "a||b"));

TEST(Regex, MasksAreThoseOfAWalk) {
    expect_masks(compile(Language::regex, "(true|false|[0-9]{1,3}(\\.[0-9]+)?)(, (true|false))*"), "12.5, true");
    expect_masks(compile(Language::regex, "\"[^\"\\\\\\x00-\\x1f\\x7f]{0,12}\" : \\[(a|b){3,}"),
                 "\"Ren\xC3\xA9 5\" : [abab");
    expect_masks(compile(Language::regex, "[a-z ]*"), "the quick");
    expect_masks(compile(Language::regex, "a*"), "aaa");
    expect_masks(compile(Language::regex, "a{15}b?a{0,20}"), "aaaaaaaaaaaaaaab");
    expect_masks(compile(Language::regex, "x{300}y"), "");
    expect_masks(compile(Language::regex, "[^]*"), "a\xC3");
}

TEST(Regex, TheEndComesWhereItMay) {
    const auto grammar = compile(Language::regex, "ab?");
    State state = Grammar::begin(grammar);
    const std::int32_t end = grammar->vocabulary().ends().front();
    EXPECT_FALSE(state.accept(end));
    EXPECT_TRUE(state.accept("a"));
    EXPECT_TRUE(state.may_end());
    EXPECT_FALSE(state.finished());
    State ended = state;
    EXPECT_TRUE(ended.accept(end));
    EXPECT_FALSE(ended.accept("b"));
    EXPECT_TRUE(state.accept("b")) << "a copy must not change its original";
    EXPECT_TRUE(state.finished());
    EXPECT_FALSE(state.accept("b"));
    EXPECT_TRUE(state.may_end()) << "what is refused changes nothing";
}

TEST(Regex, ForcedBytes) {
    const auto grammar = compile(Language::regex, "(abc|abd)\xC3\xA9!x?");
    State state = Grammar::begin(grammar);
    EXPECT_EQ(state.forced(), "ab");
    EXPECT_TRUE(state.accept("abd"));
    EXPECT_EQ(state.forced(), "\xC3\xA9!");
    EXPECT_TRUE(state.accept(state.forced()));
    EXPECT_EQ(state.forced(), "") << "the text may end";
    EXPECT_LE(Grammar::begin(compile(Language::regex, "a{1000}")).forced().size(), 256u);
}

TEST(Regex, RefusalsNamePatternAndPlace) {
    const auto says = [](const std::string& pattern) { return refusal(Language::regex, pattern); };
    EXPECT_EQ(says("a(?=b)"),
              "the pattern \"a(?=b)\" cannot be used: looking ahead or back is not supported, at character 3");
    EXPECT_NE(says("(a)\\1").find("back references"), std::string::npos);
    EXPECT_NE(says("\\bword").find("\\b is not supported"), std::string::npos);
    EXPECT_NE(says("\\p{L}").find("\\p"), std::string::npos);
    EXPECT_NE(says("(a").find("not closed"), std::string::npos);
    EXPECT_NE(says("a)").find("not opened"), std::string::npos);
    EXPECT_NE(says("*a").find("nothing to repeat"), std::string::npos);
    EXPECT_NE(says("a**").find("nothing to repeat"), std::string::npos);
    EXPECT_NE(says("[b-a]").find("wrong order"), std::string::npos);
    EXPECT_NE(says("a{3,2}").find("wrong order"), std::string::npos);
    EXPECT_NE(says("[a").find("class is not closed"), std::string::npos);
    EXPECT_NE(says("\xFF").find("not UTF-8"), std::string::npos);
    EXPECT_NE(says("[]").find("no text is valid"), std::string::npos);
    EXPECT_NE(says("(^a)*").find("is repeated"), std::string::npos);
    EXPECT_EQ(says(""), "") << "the empty text is a text";
    EXPECT_NE(refusal(Language::choices, "\n\n").find("one choice on each line"), std::string::npos);
}

TEST(Choices, AreTheLines) {
    const auto grammar = compile(Language::choices, "yes\nno\r\nnot sure\n\n");
    for (const char* good : {"yes", "no", "not sure"}) EXPECT_TRUE(accepts(grammar, good)) << good;
    for (const char* bad : {"", "ye", "not", "yesno", "no\n"}) EXPECT_FALSE(accepts(grammar, bad)) << bad;
    expect_masks(grammar, "not sure");
}

TEST(Surround, TextIsFreeUntilTheTrigger) {
    Options options;
    options.trigger = "<|tool|>";
    const auto grammar = compile(Language::regex, "[0-9]+", options);
    EXPECT_TRUE(accepts(grammar, ""));
    EXPECT_TRUE(accepts(grammar, "hello <|tool <|tool|"));
    EXPECT_FALSE(accepts(grammar, "hello <|tool|>"));
    EXPECT_TRUE(accepts(grammar, "hello <|tool|>12"));
    EXPECT_FALSE(accepts(grammar, "hello <|tool|>12 "));
    EXPECT_FALSE(accepts(grammar, "hello <|tool|>x"));
    expect_masks(grammar, "a <|too <|tool|>7");
    // The special token of that name is the trigger, too, and may come where text is free.
    const std::int32_t special = grammar->vocabulary().special().front();
    State state = Grammar::begin(grammar);
    std::vector<std::uint32_t> words(grammar->vocabulary().words());
    state.mask(words);
    EXPECT_TRUE(words[static_cast<std::size_t>(special) / 32] >> (special % 32) & 1);
    EXPECT_TRUE(state.accept(special));
    EXPECT_FALSE(state.accept("x"));
    EXPECT_FALSE(state.accept(special));
    EXPECT_TRUE(state.accept("1"));
    EXPECT_TRUE(state.may_end());
}

TEST(Surround, TextIsFreeAfterwards) {
    Options options;
    options.after = After::free;
    const auto grammar = compile(Language::regex, "ab", options);
    EXPECT_FALSE(accepts(grammar, "a"));
    EXPECT_TRUE(accepts(grammar, "ab"));
    EXPECT_TRUE(accepts(grammar, std::string("ab\xFF anything")));
    expect_masks(grammar, "ab c");
}

// Without the check for such symbols, a rule far beyond the last one was read.
TEST(Surround, APatternThatMatchesNothingIsRefusedOrNeverBegun) {
    Options options;
    options.after = After::free;
    EXPECT_THROW(compile(Language::regex, "[]", options), foresay::Error);
    options.trigger = "<|tool|>";
    const auto grammar = compile(Language::regex, "a$b", options);
    EXPECT_TRUE(accepts(grammar, "hello"));
    EXPECT_FALSE(accepts(grammar, "hello <|tool|>"));
}

// What is slow for engines that backtrack or copy. Time is no assertion: a build that hangs is cut off by ctest.
TEST(Regex, NestedQuantifiersStayCheap) {
    for (const std::string pattern : {"((((a*)*)*)*)*b", "(a|a|a|a)*b", "(a?){60}a{60}", "((a{0,50}){0,50}){0,50}b",
                                      "(.*.*.*.*)*x", "(a{1,1000000}){1,1000000}b"}) {
        const auto grammar = compile(Language::regex, pattern);
        State state = Grammar::begin(grammar);
        EXPECT_TRUE(state.accept(std::string(60, 'a'))) << pattern << ": " << state.failure();
        std::vector<std::uint32_t> words(grammar->vocabulary().words());
        state.mask(words);
        EXPECT_TRUE(words['a' / 32] >> ('a' % 32) & 1) << pattern;
    }
    std::string deep;
    for (int i = 0; i < 100'000; ++i) deep += "(";
    EXPECT_NE(refusal(Language::regex, deep).find("nested too deeply"), std::string::npos);
    std::string long_one;
    for (int i = 0; i < 200'000; ++i) long_one += "a?";
    EXPECT_NE(refusal(Language::regex, long_one).find("too complex"), std::string::npos);  // of the first mask
    EXPECT_NE(refusal(Language::regex, std::string(10 << 20, 'a')).find("2 MiB"), std::string::npos);
}

}  // namespace
}  // namespace foresay::grammar
