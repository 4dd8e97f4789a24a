// A megabyte of what is hard on tokenizers, for every kind of tokenizer: linear time, and valid ids.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "core/text/tokenizer_ranks.h"
#include "core/text/utf8.h"
#include "support.h"
#include "tests/support/goldens.h"

namespace foresay::core {
namespace {

using Ids = std::vector<std::int32_t>;

struct HostileText {
    const char* name;
    std::string unit, last;
};

const std::vector<HostileText>& hostile_texts() {
    static const std::vector<HostileText> all = {
        {"blanks", " ", ""},
        {"blanks, then a letter", " ", "x"},
        {"one letter", "a", ""},
        {"digits", "7", ""},
        {"digits of another script", "\u0663", ""},
        {"newlines", "\n", ""},
        {"line ends", "\r\n", "x"},
        {"combining marks in order", "\u0301", ""},
        {"combining marks out of order", "\u0301\u0323", "a"},
        {"invalid bytes", "\xFF", ""},
        {"broken characters", "\xE4\xBD", "x"},
        {"emoji and joiners", "\U0001F469\u200d", ""},
        {"regional indicators", "\U0001F1E9", ""},
        {"Hangul jamo", "\u1100\u1161", ""},
        {"punctuation", "!", ""},
        {"apostrophes", "'", ""},
        {"marks of spaces", "\u2581", ""},
        {"the start of a special token", "<", ""},
        {"special tokens", "<s>", ""},
        {"characters that normalise to many", "\uFDFA", ""},
    };
    return all;
}

// A quadratic algorithm would not end with a fifth of a megabyte, either; hostile_text_full has all of it.
std::size_t bytes() {
#ifdef FORESAY_SANITIZED
    return 100'000;
#else
    return std::getenv("FORESAY_HOSTILE_MEGABYTE") != nullptr ? 1'000'000 : 200'000;
#endif
}

void expect_linear(const Tokenizer& tokenizer) {
    for (const HostileText& hostile : hostile_texts()) {
        SCOPED_TRACE(hostile.name);
        std::string text;
        while (text.size() < bytes()) text += hostile.unit;
        text += hostile.last;
        const Ids ids = tokenizer.encode(text, {.add_special = true, .parse_special = true});
        for (const std::int32_t id : ids) ASSERT_TRUE(id >= 0 && id < tokenizer.vocab_size());
    }
}

std::string library_case(const std::string& name) {
    const auto golden = nlohmann::json::parse(read_file(source_path("tests/golden/tokenizers/cases.json")));
    for (const auto& each : golden["cases"]) {
        if (each["name"] != name) continue;
        nlohmann::json document = each["parts"];
        document["model"] = golden["models"][each["model"].get<std::string>()];
        return document.dump();
    }
    throw Error("no case " + name);
}

class HostileJson : public testing::TestWithParam<const char*> {};

TEST_P(HostileJson, TakesLinearTime) { expect_linear(Tokenizer::from_json(library_case(GetParam()), "t.json")); }

INSTANTIATE_TEST_SUITE_P(
    Parts, HostileJson,
    testing::Values("llama, first spelling", "gemma", "metaspace first true", "unigram always true",
                    "unigram with bytes first false", "NFC", "NFKD", "replace by expression", "byte level true true",
                    "byte level, own expression", "word boundaries", "punctuation Contiguous",
                    "split letters MergedWithPrevious inverted",
                    "added {\"lstrip\":true,\"rstrip\":true,\"single_word\":true,\"normalized\":true}"));

class HostileName : public testing::TestWithParam<std::string_view> {};

TEST_P(HostileName, TakesLinearTime) {
    TokenizerData data = small_data({{"a", "a"}, {" ", " "}, {"7", "7"}});
    add_token(data, "<s>", TokenType::control);
    const NamedPretokenizer named = named_pretokenizer(GetParam(), "test");
    data.pretokenizer = named.pretokenizer;
    expect_linear(Tokenizer(data));
}

INSTANTIATE_TEST_SUITE_P(Pretokenizers, HostileName,
                         testing::Values("default", "gpt-2", "llama-bpe", "minicpm5", "jais-2", "qwen2", "qwen35",
                                         "laguna", "seed-coder", "bailingmoe", "exaone-moe", "tekken", "gpt-4o",
                                         "tiny_aya", "youtu", "kimi-k2", "deepseek-llm", "deepseek-coder",
                                         "deepseek-v3", "afmoe", "falcon", "starcoder", "bloom", "viking", "superbpe",
                                         "chameleon", "gemma4"));

TEST(Hostile, PublishedKinds) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const auto file = [](const char* name) {
        return read_file((test::goldens_folder() / "families/tokenizers" / name).string());
    };
    expect_linear(Tokenizer::from_sentencepiece(file("spm-bpe/tokenizer.model"), "bpe"));
    expect_linear(Tokenizer::from_sentencepiece(file("spm-unigram/tokenizer.model"), "unigram"));
    expect_linear(Tokenizer::from_json(file("spm-unigram/tokenizer.json"), "unigram.json"));
    expect_linear(Tokenizer::from_tekken(file("tekken/tekken.json"), "tekken"));
    const auto vectors = nlohmann::json::parse(file("tiktoken/vectors.json"));
    const RankFileSettings settings{.pattern = vectors["pattern"], .special = {}};
    expect_linear(Tokenizer(parse_tiktoken(file("tiktoken/ranks.tiktoken"), settings, "tiktoken")));
    expect_linear(Tokenizer::from_json(file("added/tokenizer.json"), "added"));
}

}  // namespace
}  // namespace foresay::core
