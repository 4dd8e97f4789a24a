// GBNF: languages against their definitions over all short texts, masks against a walk, and grammars that do harm.
#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "tests/grammar/vocabulary.h"

namespace foresay::grammar {
namespace {

struct Language_ {
    std::string name;
    std::string grammar;
    std::string alphabet;
    std::size_t longest;  // texts that are tried; prefixes of less than half of it
    std::function<bool(std::string_view)> contains;
};

bool balanced(std::string_view text) {
    std::string open;
    for (const char c : text) {
        if (c == '(' || c == '[') {
            open += c;
        } else {
            if (open.empty() || (c == ')') != (open.back() == '(')) return false;
            open.pop_back();
        }
    }
    return open.empty();
}

bool is_sum(std::string_view text) {  // x, or sums and brackets of them
    if (text == "x") return true;
    if (text.size() > 2 && text.front() == '(' && text.back() == ')' && is_sum(text.substr(1, text.size() - 2)))
        return true;
    for (std::size_t i = 1; i + 1 < text.size(); ++i) {
        if (text[i] == '+' && is_sum(text.substr(0, i)) && is_sum(text.substr(i + 1))) return true;
    }
    return false;
}

bool powers(std::string_view text) {  // a^n b^n
    const std::size_t half = text.size() / 2;
    return text == std::string(half, 'a') + std::string(half, 'b');
}

bool palindrome(std::string_view text) { return std::equal(text.begin(), text.end(), text.rbegin()); }

const std::vector<Language_>& languages() {
    static const std::vector<Language_> table = {
        {"balanced", "root ::= (\"(\" root \")\" | \"[\" root \"]\")*", "()[]", 8, balanced},
        {"left_recursive", "root ::= sum\nsum ::= sum \"+\" term | term\nterm ::= \"x\" | \"(\" sum \")\"", "x+()", 8,
         is_sum},
        {"right_recursive", "root ::= term \"+\" root | term\nterm ::= \"x\" | \"(\" root \")\"", "x+()", 8, is_sum},
        {"ambiguous", "root ::= root \"+\" root | \"(\" root \")\" | \"x\"", "x+()", 8, is_sum},
        {"powers", "root ::= \"\" | \"a\" root \"b\"", "ab", 12, powers},
        {"palindromes", "root ::= \"\" | [ab] | \"a\" root \"a\" | \"b\" root \"b\"", "ab", 10, palindrome},
        {"empty_cycles",
         "root ::= left right\nleft ::= right | \"a\"?\nright ::= left left | \"b\"? # both may be empty", "ab", 6,
         [](std::string_view) { return true; }},
        {"hidden_left", "root ::= nothing root \"a\" | \"b\"\nnothing ::= (\"c\" nothing)?", "abc", 7,
         [](std::string_view t) {
             // c* ... : every a closes one root; c may stand before each of them.
             const std::size_t b = t.find('b');
             return b != t.npos && t.find_first_not_of('c') == b && t.find_first_not_of('a', b + 1) == t.npos &&
                    (b == 0 || t.size() > b + 1);
         }},
        {"counted", "root ::= item{2,3} | \"!\"\nitem ::= \"a\" item? \"b\"", "ab!", 8,
         [](std::string_view t) {
             if (t == "!") return true;
             int depth = 0;
             int items = 0;
             bool closing = false;
             for (const char c : t) {
                 if (c == '!') return false;
                 if (c == 'a' && closing && depth > 0) return false;
                 closing = c == 'b';
                 depth += c == 'a' ? 1 : -1;
                 if (depth < 0) return false;
                 items += depth == 0 ? 1 : 0;
             }
             return depth == 0 && (items == 2 || items == 3);
         }},
        {"plain",
         "root ::= \"x\" rest{2} | other # no recursion: one automaton\nrest ::= [a-b] | \"c\"\nother ::=\n  \"a\"\n  "
         "| \"b\"",
         "xabc", 5,
         [](std::string_view t) {
             return t == "a" || t == "b" || (t.size() == 3 && t[0] == 'x' && t.find('x', 1) == t.npos);
         }},
    };
    return table;
}

class Gbnf : public testing::TestWithParam<std::size_t> {};

TEST_P(Gbnf, PrefixesAndEndsAreThoseOfTheLanguage) {
    const Language_& language = languages()[GetParam()];
    std::vector<std::string> texts = {""};
    std::set<std::string> prefixes;
    for (std::size_t i = 0; i < texts.size(); ++i) {
        if (texts[i].size() < language.longest) {
            for (const char c : language.alphabet) texts.push_back(texts[i] + c);
        }
        if (!language.contains(texts[i])) continue;
        for (std::size_t n = 0; n <= texts[i].size(); ++n) prefixes.insert(texts[i].substr(0, n));
    }
    const auto grammar = compile(Language::gbnf, language.grammar);
    std::size_t ends = 0;
    for (const std::string& text : texts) {
        State state = Grammar::begin(grammar);
        const bool alive = text.empty() || state.accept(text);
        ASSERT_EQ(alive && state.may_end(), language.contains(text)) << language.name << ": '" << text << "'";
        ends += alive && state.may_end() ? 1 : 0;
        if (text.size() * 2 < language.longest) {
            ASSERT_EQ(alive, prefixes.count(text) == 1) << language.name << ": '" << text << "'";
        }
    }
    EXPECT_GT(ends, 2u);
}

INSTANTIATE_TEST_SUITE_P(Languages, Gbnf, testing::Range(std::size_t{0}, languages().size()),
                         [](const auto& info) { return languages()[info.param].name; });

const char* const kJson = R"(# JSON, with lists of values
root   ::= ws value
value  ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}" ws
array  ::= "[" ws (value ("," ws value)*)? "]" ws
string ::= "\"" ([^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}))* "\"" ws
number ::= "-"? ([0-9] | [1-9] [0-9]{0,15}) ("." [0-9]+)? ([eE] [-+]? [0-9]{1,15})? ws
ws     ::= | " " | "\n" [ \t]{0,20}
)";

TEST(GbnfText, JsonAndItsMasks) {
    const auto grammar = compile(Language::gbnf, kJson);
    for (const char* good :
         {"{}", "[1, 2,3]", "{\"a\": [true, null], \"b\":\n  \"\\u00e9\xC3\xA9\"}", "-1.5e+10", "\"\""})
        EXPECT_TRUE(accepts(grammar, good)) << good;
    for (const char* bad : {"", "{", "[1,]", "{\"a\"}", "01", "\"\n\"", "{}}", "[1 2]", "tru"})
        EXPECT_FALSE(accepts(grammar, bad)) << bad;
    expect_masks(grammar, "{\"name\": \"Ren\xC3\xA9 5\", \"size\":\n -12.5e+10}");
}

TEST(GbnfText, MasksOfNestedAndAmbiguousGrammars) {
    expect_masks(compile(Language::gbnf, "root ::= (\"(\" root \")\" | [a-z0-9 +*/-]+)*"), "(a+b)*(c");
    expect_masks(compile(Language::gbnf, "root ::= root root | \"a\" | \"ab\" | \"b\""), "abab");
    expect_masks(compile(Language::gbnf, "root ::= \"a\" root | \"\""), "aaaa");
    expect_masks(compile(Language::gbnf, "root ::= word (\" \" word)* \".\"?\nword ::= [a-z]+ | \"(\" root \")\""),
                 "the (qu");
}

TEST(GbnfText, NotationOfLlamaCpp) {
    const auto accepted = [](const std::string& grammar, std::string_view text) {
        return accepts(compile(Language::gbnf, grammar), text);
    };
    EXPECT_TRUE(accepted("root ::= \"\\x41\\u00e9\\U0001F600\\\"\\\\\"", "A\xC3\xA9\xF0\x9F\x98\x80\"\\"));
    EXPECT_TRUE(accepted("root ::= [^\\n\\]a-c]+ \"\\n\"", "xyz\n"));
    EXPECT_TRUE(accepted("root ::= [a\\-z-]{3}", "a-z"));
    EXPECT_TRUE(accepted("root::=a-b_c1\na-b_c1 ::= .{2}", "\xE2\x82\xAC\n"));
    EXPECT_TRUE(accepted("\n# comment\nroot ::= ( # inside\n \"a\" |\n \"b\"\n) # after\n\n", "b"));
    EXPECT_TRUE(accepted("root ::= \"a\"{2,}", "aaa"));
    EXPECT_FALSE(accepted("root ::= \"a\"{2,}", "a"));
    EXPECT_TRUE(accepted("root ::= (\"a\" | ) \"b\"", "b"));
    EXPECT_TRUE(accepted("root ::= \"ab\"? \"c\"*+", "abc"));
}

TEST(GbnfText, RefusalsNameRuleAndLine) {
    const auto says = [](const std::string& grammar) { return refusal(Language::gbnf, grammar); };
    EXPECT_EQ(says("root ::= \"a\"\n\nx ::= y"), "the grammar has no rule \"y\", which line 3 uses");
    EXPECT_NE(says("").find("no rule \"root\""), std::string::npos);
    EXPECT_NE(says("a ::= \"b\"").find("no rule \"root\""), std::string::npos);
    EXPECT_NE(says("root ::= root").find("no text is valid"), std::string::npos) << "left-recursive without end";
    EXPECT_NE(says("root ::= \"a\" root").find("no text is valid"), std::string::npos);
    EXPECT_NE(says("root ::= \"a").find("not closed, in line 1"), std::string::npos);
    EXPECT_NE(says("root ::= (\"a\"\nx ::= \"b\"").find(") is missing"), std::string::npos);
    EXPECT_NE(says("root ::= \"a\"\nroot ::= \"b\"").find("there twice, in line 2"), std::string::npos);
    EXPECT_NE(says("root = \"a\"").find("::= is missing"), std::string::npos);
    EXPECT_NE(says("root ::= <think>").find("tokens by name"), std::string::npos);
    EXPECT_NE(says("root ::= \"\\q\"").find("\\q means nothing"), std::string::npos);
    EXPECT_NE(says("root ::= \"a\"{3,1}").find("wrong order"), std::string::npos);
    EXPECT_NE(says("root ::= *").find("is missing"), std::string::npos);
    EXPECT_NE(says("root ::= (root \"x\" | \"a\"){100000}").find("too large"), std::string::npos);
    std::string deep = "root ::= ";
    for (int i = 0; i < 100'000; ++i) deep += "(";
    EXPECT_NE(says(deep).find("nested too deeply"), std::string::npos);
}

// Rules that can never end are left out, so that no text leads into them.
TEST(GbnfText, DeadEndsAreNotOffered) {
    const auto grammar =
        compile(Language::gbnf, "root ::= \"a\" dead | \"b\" root | \"c\"\ndead ::= \"x\" dead | [] | dead");
    State state = Grammar::begin(grammar);
    EXPECT_FALSE(state.accept("a"));
    EXPECT_TRUE(state.accept("b"));
    expect_masks(grammar, "bbc");
}

// Long texts: lists that repeat come back to the same rows; right recursion and deep nesting grow by a row at a time.
TEST(GbnfText, LongTextsStayCheap) {
    for (const char* grammar :
         {"root ::= \"a\" root | \"a\"", "root ::= root \"a\" | \"a\"",
          "root ::= (item)+\nitem ::= \"a\" | \"(\" item \")\"", "root ::= \"a\" other | \"a\"\nother ::= root"}) {
        const auto compiled = compile(Language::gbnf, grammar);
        State state = Grammar::begin(compiled);
        ASSERT_TRUE(state.accept(std::string(20'000, 'a'))) << grammar << ": " << state.failure();
        EXPECT_TRUE(state.may_end());
        const State copy = state;
        expect_masks(compiled, "aaa");
        EXPECT_TRUE(copy.may_end());
    }
    const auto nested = compile(Language::gbnf, "root ::= \"(\" root \")\" | \"x\"");
    State state = Grammar::begin(nested);
    ASSERT_TRUE(state.accept(std::string(20'000, '(') + "x" + std::string(19'999, ')')));
    EXPECT_FALSE(state.may_end());
    EXPECT_EQ(state.forced(), ")");
    EXPECT_TRUE(state.accept(")"));
    EXPECT_TRUE(state.finished());
}

TEST(GbnfText, TooManyReadingsAreAFailureOfTheState) {
    const auto grammar = compile(Language::gbnf, "root ::= part root | part\npart ::= [a]+ | part \"b\"");
    State state = Grammar::begin(grammar);
    EXPECT_FALSE(state.accept(std::string(2000, 'a')));
    EXPECT_NE(state.failure().find("too ambiguous"), std::string::npos) << state.failure();
    std::vector<std::uint32_t> words(grammar->vocabulary().words());
    state.mask(words);
    for (const std::uint32_t word : words) EXPECT_EQ(word, 0u);
    EXPECT_FALSE(state.accept("a"));
}

}  // namespace
}  // namespace foresay::grammar
