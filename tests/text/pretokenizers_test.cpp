// The table of pre-tokenizers and the splitting rules, on texts small enough to check by eye.
#include "core/text/pretokenizers.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>

#include "core/text/splitter.h"
#include "support.h"

namespace foresay::core {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(const Splitter& splitter, std::string_view text) {
    Pieces pieces;
    splitter.split(
        text, TextPlace::start,
        [](void* out, std::string_view piece) {
            static_cast<Pieces*>(out)->emplace_back(piece);
            return true;
        },
        &pieces);
    return pieces;
}

Pieces split(std::string_view name, std::string_view text) {
    return split(Splitter(named_pretokenizer(name, "test").pretokenizer, "test"), text);
}

Pieces split_by(std::vector<SplitStep> steps, std::string_view text) {
    return split(Splitter({"", steps}, "test"), text);
}

// The names that GGUF files in the world carry for byte-level BPE.
const char* const kNames[] = {"default",
                              "minicpm5",
                              "llama3",
                              "llama-v3",
                              "llama-bpe",
                              "falcon3",
                              "falcon-h1",
                              "pixtral",
                              "midm-2.0",
                              "lfm2",
                              "jina-v5-nano",
                              "deepseek-llm",
                              "deepseek-coder",
                              "deepseek-v3",
                              "youtu",
                              "falcon",
                              "mpt",
                              "starcoder",
                              "gpt-2",
                              "phi-2",
                              "jina-es",
                              "jina-de",
                              "gigachat",
                              "jina-v2-es",
                              "jina-v2-de",
                              "a.x-4.0",
                              "mellum",
                              "modern-bert",
                              "jais-2",
                              "jina-v1-en",
                              "jina-v2-code",
                              "roberta-bpe",
                              "refact",
                              "command-r",
                              "qwen2",
                              "deepseek-r1-qwen",
                              "kormo",
                              "f2llmv2",
                              "qwen35",
                              "stablelm2",
                              "olmo",
                              "dbrx",
                              "smaug-bpe",
                              "poro-chat",
                              "glm4",
                              "chatglm-bpe",
                              "viking",
                              "jais",
                              "tekken",
                              "smollm",
                              "codeshell",
                              "bloom",
                              "gpt3-finnish",
                              "exaone",
                              "exaone4",
                              "exaone-moe",
                              "chameleon",
                              "minerva-7b",
                              "megrez",
                              "gpt-4o",
                              "llama4",
                              "kanana2",
                              "talkie",
                              "granite-embed-multi-97m",
                              "tiny_aya",
                              "cohere2moe",
                              "superbpe",
                              "trillion",
                              "granite-docling",
                              "bailingmoe",
                              "bailingmoe2",
                              "llada-moe",
                              "seed-coder",
                              "hunyuan",
                              "hunyuan-dense",
                              "joyai-llm",
                              "kimi-k2",
                              "grok-2",
                              "afmoe",
                              "laguna",
                              "minimax-m2",
                              "solar-open",
                              "mellum2",
                              "gemma4"};

TEST(Pretokenizers, EveryNameCompilesAndLosesNothing) {
    const std::string text =
        "Hello, World's  end\r\n\n\tx = 12345.678 ½ \xC3\xA9t\xC3\xA9 e\xCC\x81 \xE4\xBD\xA0\xE5\xA5\xBD\xE3\x81\xAA"
        "\xEA\xB0\x80 \xF0\x9F\x98\x80!? <sentinel:1> IMGIMGABZ foo_bar \xFF\xC3 end   ";
    for (const char* name : kNames) {
        std::string joined;
        for (const std::string& piece : split(name, text)) {
            EXPECT_FALSE(piece.empty()) << name;
            joined += piece;
        }
        EXPECT_EQ(joined, text) << name;
    }
    EXPECT_EQ(pretokenizer_names().size(), std::size(kNames));
}

TEST(Pretokenizers, AnUnknownNameIsNamedWithTheKnownOnes) {
    const std::string error = error_of([] { named_pretokenizer("whitespace", "model.gguf"); });
    EXPECT_NE(error.find("model.gguf: unknown pre-tokenizer 'whitespace'"), std::string::npos);
    EXPECT_NE(error.find("llama-bpe"), std::string::npos);
}

TEST(Pretokenizers, Families) {
    EXPECT_EQ(split("gpt-2", "I'm  a\n\nb 123"), (Pieces{"I", "'m", " ", " a", "\n", "\n", "b", " 123"}));
    EXPECT_EQ(split("llama-bpe", "I'M  a\n\nb 12345!\n"),
              (Pieces{"I", "'M", " ", " a", "\n\n", "b", " ", "123", "45", "!\n"}));
    EXPECT_EQ(split("qwen2", "a 123"), (Pieces{"a", " ", "1", "2", "3"}));
    EXPECT_EQ(split("starcoder", "a 12"), (Pieces{"a", " ", "1", "2"}));
    EXPECT_EQ(split("falcon", "12345 a+b"), (Pieces{"123", "45", " a", "+", "b"}));
    EXPECT_EQ(split("gpt-4o", "HelloWORLD's fooBar"), (Pieces{"Hello", "WORLD's", " foo", "Bar"}));
    EXPECT_EQ(split("tekken", "HTTPServer1"), (Pieces{"HTTPServer", "1"}));
    EXPECT_EQ(split("deepseek-coder", "ab\n 12"), (Pieces{"ab", "\n", " ", "1", "2"}));
    EXPECT_EQ(split("bloom", "a b,c"), (Pieces{"a", " b", ",", "c"}));
    EXPECT_EQ(split("kimi-k2",
                    "Ab\xE4\xBD\xA0\xE5\xA5\xBD"
                    "c"),
              (Pieces{"Ab", "\xE4\xBD\xA0\xE5\xA5\xBD", "c"}));
    EXPECT_EQ(split("exaone-moe", "ab cd  e"), (Pieces{"ab cd", " ", " e"}));
    EXPECT_EQ(split("chameleon", "a    b"), (Pieces{"a", "    ", "b"}));
    EXPECT_EQ(split("laguna", "a\n\nb"), (Pieces{"a", "\n\n", "b"}));
}

TEST(Pretokenizers, Thousands) {
    EXPECT_EQ(split("afmoe", "1234567"), (Pieces{"1", "234", "567"}));
    EXPECT_EQ(split("tiny_aya", "x 1234567 y"), (Pieces{"x", " ", "1", "234", "567", " y"}));
    EXPECT_EQ(split("tiny_aya", "1234abc"), (Pieces{"123", "4", "abc"}));  // touches a letter: counted from the left
    EXPECT_EQ(split("superbpe", "ab 1234567 cd"), (Pieces{"ab ", "1", "234", "567", " cd"}));
    EXPECT_EQ(split("superbpe", "123"), (Pieces{"123"}));
}

TEST(Pretokenizers, TheFastThousandsEqualTheSlowExpressions) {
    for (const char* slow : {R"re(\d{1,3}(?=(?:\d{3})*\b))re", R"re((?=(\d{3})+(?!\d)))re"}) {
        EXPECT_NE(split_step(slow).regex, slow);
        for (const char* text :
             {"", "1", "12", "123", "1234", "1234567", "a123456", "123456a", "12 3456,78901", "1_", "12345_",
              "1234\xC3\xA9", "\xD9\xA1\xD9\xA2\xD9\xA3\xD9\xA4", "a1234567b12345", "-1234."})
            EXPECT_EQ(split_by({split_step(slow)}, text), split_by({{slow}}, text)) << slow << ' ' << text;
    }
}

TEST(Pretokenizers, LongNumbersTakeLinearTime) {
    const std::string digits(1 << 21, '7');
    for (const char* name : {"tiny_aya", "superbpe", "afmoe", "llama-bpe"}) {
        const auto start = std::chrono::steady_clock::now();
        EXPECT_GT(split(name, digits).size(), digits.size() / 3);
        EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20)) << name;
    }
}

TEST(Splitting, UnmatchedStretchesArePiecesAndStepsSeeOnePieceEach) {
    EXPECT_EQ(split_by({{"b+"}}, "abbc"), (Pieces{"a", "bb", "c"}));
    EXPECT_EQ(split_by({{"b"}, {"a$"}}, "aba"), (Pieces{"a", "b", "a"}));
    EXPECT_EQ(split_by({}, "a b"), (Pieces{"a b"}));
    EXPECT_EQ(split_by({{"(?=b)"}}, "abbc"), (Pieces{"a", "b", "bc"}));
    EXPECT_EQ(split_by({{"x*"}},
                       "\xC3\xA9"
                       "a"),
              (Pieces{"\xC3\xA9", "a"}));
    EXPECT_EQ(split_by({{"b"}}, ""), (Pieces{}));
}

TEST(Splitting, InvalidBytesStandApart) {
    EXPECT_EQ(split_by({{"[a-z]+"}},
                       "ab\xFF\xFE"
                       "c\xE4\xBD"),
              (Pieces{"ab", "\xFF\xFE", "c", "\xE4\xBD"}));
    EXPECT_EQ(split_by({{"(?s:.+)"}}, "\xED\xA0\x80x"), (Pieces{"\xED\xA0\x80", "x"}));
}

TEST(Splitting, WhiteSpaceIsUnicodes) {
    EXPECT_EQ(split_by({{"\\s"}},
                       "a\xE1\xA0\x8E"
                       "b"),
              (Pieces{"a\xE1\xA0\x8E"
                      "b"}));  // U+180E is none
    EXPECT_EQ(split_by({{"[^\\s]+"}}, "a\xE1\xA0\x8E b"), (Pieces{"a\xE1\xA0\x8E", " ", "b"}));
    EXPECT_EQ(split_by({{"\\S+"}}, "a\xE1\xA0\x8E b"), (Pieces{"a\xE1\xA0\x8E", " ", "b"}));
    EXPECT_EQ(split_by({{"[\\S]+"}}, "a\xE1\xA0\x8E b"), (Pieces{"a\xE1\xA0\x8E", " ", "b"}));
    for (const char* space :
         {"\t", "\n", "\v", "\f", "\r", " ", "\xC2\x85", "\xC2\xA0", "\xE1\x9A\x80", "\xE2\x80\x80", "\xE2\x80\x8A",
          "\xE2\x80\xA8", "\xE2\x80\xA9", "\xE2\x80\xAF", "\xE2\x81\x9F", "\xE3\x80\x80"}) {
        EXPECT_EQ(split_by({{"\\s"}}, std::string("a") + space + "b").size(), 3u);
        EXPECT_EQ(split_by({{"[\\S]"}}, space).size(), 1u);
        EXPECT_EQ(split_by({{"\\S+"}}, std::string("a") + space + "b"), (Pieces{"a", space, "b"}));
    }
}

TEST(Splitting, ExpressionsThatMeanSomethingElseAreRefused) {
    for (const char* regex : {"[^a&&[b]]", "[a&&b]", "[a[bc]]", "[\\W]", "(?m)a", "\\h", "(", "[", "\\p{Nonsense}",
                              "a{99999}", "\\C", "(?P<"})
        EXPECT_NE(error_of([&] { split_by({{regex}}, "a"); }).find("test: the pre-tokenizer expression"),
                  std::string::npos)
            << regex;
    EXPECT_EQ(split_by({{"[a-z&&[^b]]+"}}, "abc1"), (Pieces{"a", "b", "c", "1"}));
    EXPECT_EQ(split_by({{"[]a]+"}}, "x]a"), (Pieces{"x", "]a"}));
    EXPECT_EQ(split_by({{"[^]a]+"}}, "x]a"), (Pieces{"x", "]a"}));
}

TEST(Splitting, AnExpressionThatExplodesIsAnErrorNotAHang) {
    const auto start = std::chrono::steady_clock::now();
    const std::string error = error_of([] { split_by({{"(?:a|a|aa)+$"}}, std::string(60, 'a') + "b"); });
    EXPECT_NE(error.find("too much effort"), std::string::npos);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(60));
}

// Expressions from files that look far ahead from every place, or try many ways, on a megabyte.
TEST(Splitting, UnknownExpressionsAreLinearOrRefused) {
    const std::size_t size = 1 << 20;
    const std::string letters(size, 'a'), blanks(size, ' ');
    for (const char* regex : {"a*b", "a+(?=b)", "(?:a+)+b", "(a|aa)+$x", "\\s+(?=\\S)", ".*x", "(?<=a)a*c"}) {
        for (const std::string& text : {letters, blanks}) {
            Pieces pieces;
            const std::string error = error_of([&] { pieces = split_by({{regex}}, text); });
            if (error.empty()) {
                EXPECT_EQ(pieces.size(), 1u) << regex;
            } else {
                EXPECT_NE(error.find("needs too much effort on this text (1048576 bytes)"), std::string::npos) << error;
            }
        }
    }
    // Far, but from few places.
    EXPECT_EQ(split_by({{"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+|x"}}, blanks + "x"), (Pieces{blanks.substr(1), " ", "x"}));
    EXPECT_EQ(split_by({{"[ab]+"}}, letters), (Pieces{letters}));
}

TEST(Splitting, BoundedAndTrustedSearchAgree) {
    const char* const regex = R"re(\s+(?!\S)|[^\s\p{L}]?\p{L}+(?=x)|(?<=1)\d|\p{L}+$|\s+)re";
    const Regex bounded(regex, "test"), trusted(regex, "test", RegexTrust::trusted);
    std::mt19937 random(4);
    for (int round = 0; round < 300; ++round) {
        std::string text;
        const std::size_t runs = random() % 12;
        for (std::size_t i = 0; i < runs; ++i) {
            const char* const part[] = {"a", " ", "1", "\n", "x", "\xC3\xA9", "!"};
            const char* const chosen = part[random() % 7];
            for (std::size_t k = random() % (round % 10 == 0 ? 400 : 5); k > 0; --k) text += chosen;
        }
        RegexScratch one(text.size()), other(text.size());
        for (std::size_t from = 0; from <= text.size();) {
            RegexMatch a{from, from}, b{from, from};
            const bool found = trusted.find(one, text, from, a);
            ASSERT_EQ(bounded.find(other, text, from, b), found);
            if (!found) break;
            ASSERT_EQ(a.begin, b.begin);
            ASSERT_EQ(a.end, b.end);
            from = a.end;
        }
    }
}

TEST(Splitting, BehavioursOfAMatch) {
    const auto with = [](SplitBehavior behavior, bool invert) {
        SplitStep step{.regex = "-"};
        step.behavior = behavior;
        step.invert = invert;
        return split_by({step}, "the-final--count-");
    };
    EXPECT_EQ(with(SplitBehavior::isolated, false), (Pieces{"the", "-", "final", "-", "-", "count", "-"}));
    EXPECT_EQ(with(SplitBehavior::removed, false), (Pieces{"the", "final", "count"}));
    EXPECT_EQ(with(SplitBehavior::removed, true), (Pieces{"-", "-", "-", "-"}));
    EXPECT_EQ(with(SplitBehavior::merged_with_previous, false), (Pieces{"the-", "final-", "-", "count-"}));
    EXPECT_EQ(with(SplitBehavior::merged_with_next, false), (Pieces{"the", "-final", "-", "-count", "-"}));
    EXPECT_EQ(with(SplitBehavior::contiguous, false), (Pieces{"the", "-", "final", "--", "count", "-"}));
}

TEST(Splitting, DeepBacktrackingFindsItsStack) {
    const std::string text(1 << 16, 'a');
    EXPECT_EQ(split_by({{"(?:a|b)+"}}, text), (Pieces{text}));
}

}  // namespace
}  // namespace foresay::core
