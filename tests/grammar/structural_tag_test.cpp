// Structural tags: each type of part by hand, masks against a walk, special tokens, refusals; and what a stranger's
// grammar may cost.
#include <gtest/gtest.h>

#include "tests/grammar/vocabulary.h"

namespace foresay::grammar {
namespace {

std::string tag(const std::string& format) { return R"({"type":"structural_tag","format":)" + format + "}"; }

struct Case {
    std::string format;
    std::vector<std::string> good;
    std::vector<std::string> bad;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.format; }

class Parts : public testing::TestWithParam<Case> {};

TEST_P(Parts, HoldExactly) {
    const Case& c = GetParam();
    const auto grammar = compile(Language::structural_tag, tag(c.format), {.whitespace = Whitespace::compact});
    for (const std::string& text : c.good) {
        State state = Grammar::begin(grammar);
        EXPECT_TRUE((text.empty() || state.accept(text)) && state.may_end()) << c.format << " should take " << text;
        expect_masks(grammar, text);
    }
    for (const std::string& text : c.bad) EXPECT_FALSE(accepts(grammar, text)) << c.format << " should not: " << text;
}

INSTANTIATE_TEST_SUITE_P(
    Each, Parts,
    testing::Values(
        Case{R"({"type":"const_string","value":"a\nb"})", {"a\nb"}, {"", "a", "a\nbb"}},
        Case{R"({"type":"sequence","elements":[{"type":"const_string","value":"("},
                 {"type":"json_schema","json_schema":{"type":"integer"}},{"type":"regex","pattern":"x{2}"}]})",
             {"(12xx", "(-3xx"},
             {"(xx", "(1x", "1xx", "(1.5xx"}},
        Case{R"({"type":"or","elements":[{"type":"const_string","value":"ab"},{"type":"grammar","grammar":
                 "root ::= \"a\" root | \"c\""}]})",
             {"ab", "c", "aac"},
             {"", "a", "abc"}},
        Case{R"({"type":"optional","content":{"type":"const_string","value":"a"}})", {"", "a"}, {"aa"}},
        Case{R"({"type":"plus","content":{"type":"const_string","value":"ab"}})", {"ab", "abab"}, {"", "aba"}},
        Case{R"({"type":"star","content":{"type":"regex","pattern":"a|bb"}})", {"", "abba"}, {"b", "abbb"}},
        Case{R"({"type":"any_text"})", {"", "what \xF0\x9F\x98\x80 ever\n"}, {}},
        Case{R"({"type":"any_text","excludes":["<t>","if"]})", {"", "<t", "i f"}, {"a<t>", "x if y"}},
        // What follows reasoning; the first end ends it.
        Case{R"({"type":"sequence","elements":[{"type":"tag","begin":"<t>","content":{"type":"any_text"},"end":"</t>"},
                 {"type":"json_schema","json_schema":{"type":"object","properties":{"a":{"type":"boolean"}},
                 "required":["a"],"additionalProperties":false}}]})",
             {"<t>hm</t>{\"a\":true}", "<t></t>{\"a\":false}"},
             {"{\"a\":true}", "<t>x</t></t>{\"a\":true}", "<t>x{\"a\":true}"}},
        // Two schemas of one text are two documents: each has its own definitions.
        Case{R"({"type":"sequence","elements":[
                 {"type":"json_schema","json_schema":{"$ref":"#/$defs/x","$defs":{"x":{"const":1}}}},
                 {"type":"json_schema","json_schema":{"$ref":"#/$defs/x","$defs":{"x":{"const":2}}}}]})",
             {"12"},
             {"11", "22", "21"}},
        Case{R"({"type":"triggered_tags","triggers":["<f="],"tags":[
                 {"begin":"<f=a>","content":{"type":"json_schema","json_schema":{"type":"integer"}},"end":"</f>"},
                 {"begin":"<f=b>","content":{"type":"any_text"},"end":"</f>"}]})",
             {"", "text < f", "<f=a>1</f>", "see <f=b>x</f> and <f=a>-2</f>."},
             {"<f=", "<f=c>1</f>", "<f=a>x</f>", "<f=a>1"}},
        Case{R"({"type":"triggered_tags","triggers":["<f="],"at_least_one":true,"stop_after_first":true,"tags":[
                 {"begin":"<f=a>","content":{"type":"any_text"},"end":"</f>"}]})",
             {"<f=a>1</f>", "text <f=a></f>"},
             {"", "text", "<f=a>1</f> more", "<f=a>1</f><f=a>1</f>"}}));

// A token by its name: the special token may come, or its text; in a constant text the special token may not.
TEST(StructuralTag, SpecialTokensAreNamed) {
    const auto& vocabulary = *rich_vocabulary();
    const std::int32_t special = vocabulary.special().front();
    const std::string name = vocabulary.token(special).bytes;
    for (const bool named : {true, false}) {
        const std::string part = named ? R"({"type":"token","token":")" + name + "\"}"
                                       : R"({"type":"const_string","value":")" + name + "\"}";
        const auto grammar = compile(Language::structural_tag, tag(R"({"type":"sequence","elements":[)" + part +
                                                                   R"(,{"type":"const_string","value":"x"}]})"));
        State state = Grammar::begin(grammar);
        std::vector<std::uint32_t> words(vocabulary.words());
        state.mask(words);
        EXPECT_EQ((words[static_cast<std::size_t>(special) / 32] >> (special % 32) & 1) != 0, named);
        EXPECT_EQ(state.accept(special), named);
        EXPECT_TRUE(accepts(grammar, name + "x"));
    }
}

TEST(StructuralTag, RefusalsNameThePlace) {
    const auto says = [](const std::string& format) { return refusal(Language::structural_tag, tag(format)); };
    EXPECT_EQ(refusal(Language::structural_tag, "{}"),
              R"(a structural tag is {"type": "structural_tag", "format": ...})");
    EXPECT_NE(says("5").find("/format has no member \"type\""), std::string::npos);
    EXPECT_NE(says(R"({"type":"or","elements":[{"type":"nonsense"}]})").find("/format/elements/0 has the type"),
              std::string::npos);
    EXPECT_NE(says(R"({"type":"sequence","elements":[]})").find("/format/elements must be a list"), std::string::npos);
    EXPECT_NE(says(R"({"type":"json_schema","json_schema":{"not":{}}})").find("\"not\" at #"), std::string::npos);
    EXPECT_NE(says(R"({"type":"regex","pattern":"(a"})").find("(a"), std::string::npos);
    EXPECT_NE(says(R"({"type":"triggered_tags","triggers":["x"],"tags":[{"begin":"y","content":{"type":"any_text"},
                       "end":"z"}]})")
                  .find("no tag begins with"),
              std::string::npos);
    std::string deep = R"({"type":"any_text"})";
    for (int i = 0; i < 70; ++i) deep = R"({"type":"optional","content":)" + deep + "}";
    EXPECT_NE(says(deep).find("nested too deeply"), std::string::npos);
    EXPECT_NE(says(R"({"type":"json_schema","json_schema":false})").find("no text is valid"), std::string::npos);
}

// The same sentence at the same step on every machine; without a limit some of these take minutes.
TEST(StructuralTag, AStrangersGrammarIsRefusedSoon) {
    const Options limited{.most_work = 5'000'000};
    const auto refused = [&](Language language, const std::string& text) {
        const std::string why = refusal(language, text, limited);
        return why.find("takes too long") != std::string::npos || why.find("too complex") != std::string::npos ||
               why.find("too large") != std::string::npos || why.find("too many") != std::string::npos;
    };
    std::string branches;
    for (int i = 0; i < 400; ++i)
        branches += (i == 0 ? "" : ",") + std::string(R"({"type":"string","pattern":"^(a|b)*x[ab]{)") +
                    std::to_string(i + 20) + "}$\"}";
    EXPECT_TRUE(refused(Language::json_schema, R"({"oneOf":[)" + branches + "]}"));
    std::string patterns;
    for (int i = 0; i < 30; ++i)
        patterns += (i == 0 ? "\"" : ",\"") + std::string("^.*x.{") + std::to_string(10 + i) + "}$\":{}";
    EXPECT_TRUE(refused(Language::json_schema, R"({"type":"object","patternProperties":{)" + patterns + "}}"));
    EXPECT_TRUE(
        refused(Language::structural_tag, tag(R"({"type":"json_schema","json_schema":{"oneOf":[)" + branches + "]}}")));
    // What people send is far below the limit.
    EXPECT_EQ(refusal(Language::json_schema, R"({"type":"string","maxLength":1000000})", limited), "");
    std::string properties;
    for (int i = 0; i < 500; ++i)
        properties += (i == 0 ? "\"" : ",\"") + std::string("name_") + std::to_string(i) +
                      R"(":{"type":["string","null"],"minLength":1,"maxLength":200})";
    EXPECT_EQ(refusal(Language::json_schema, R"({"type":"object","properties":{)" + properties + "}}", limited), "");
}

}  // namespace
}  // namespace foresay::grammar
