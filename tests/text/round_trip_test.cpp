// Random strings of every script survive a round trip where the tokenizer loses nothing. FORESAY_ROUND_TRIPS is how
// many strings of each script are tried: 10,000 under the label slow.
#include <gtest/gtest.h>

#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>

#include "core/text/stream_decoder.h"
#include "core/text/tokenizer_ranks.h"
#include "core/text/utf8.h"
#include "support.h"
#include "tests/support/goldens.h"

namespace foresay::core {
namespace {

struct Script {
    const char* name;
    char32_t first, last;
};

constexpr Script kScripts[] = {
    {"ASCII", 0x00, 0x7F},
    {"Latin", 0xA0, 0x24F},
    {"Greek", 0x370, 0x3FF},
    {"Cyrillic", 0x400, 0x52F},
    {"Armenian", 0x530, 0x58F},
    {"Hebrew", 0x590, 0x5FF},
    {"Arabic", 0x600, 0x6FF},
    {"Devanagari", 0x900, 0x97F},
    {"Bengali", 0x980, 0x9FF},
    {"Tamil", 0xB80, 0xBFF},
    {"Thai", 0xE00, 0xE7F},
    {"Tibetan", 0xF00, 0xFFF},
    {"Georgian", 0x10A0, 0x10FF},
    {"Hangul jamo", 0x1100, 0x11FF},
    {"Ethiopic", 0x1200, 0x137F},
    {"Khmer", 0x1780, 0x17FF},
    {"punctuation", 0x2000, 0x206F},
    {"symbols", 0x2190, 0x23FF},
    {"Kana", 0x3040, 0x30FF},
    {"Han", 0x4E00, 0x9FFF},
    {"Hangul", 0xAC00, 0xD7A3},
    {"presentation forms", 0xFB00, 0xFDFF},
    {"full width", 0xFF00, 0xFFEF},
    {"Gothic", 0x10330, 0x1034F},
    {"music", 0x1D100, 0x1D1FF},
    {"emoji", 0x1F300, 0x1FAFF},
    {"Han, extended", 0x20000, 0x2A6DF},
};

int rounds() {
    const char* wanted = std::getenv("FORESAY_ROUND_TRIPS");
    return wanted != nullptr ? std::atoi(wanted) : 40;
}

// `mark`: the tokenizer reads U+2581 as a space, so texts hold none.
void expect_round_trips(const Tokenizer& tokenizer, bool mark = false) {
    std::mt19937 random(5);
    for (const Script& script : kScripts) {
        SCOPED_TRACE(script.name);
        for (int round = 0; round < rounds(); ++round) {
            std::string text;
            for (std::size_t length = random() % 40; length > 0; --length) {
                const char32_t code =
                    random() % 6 == 0 ? U' ' : script.first + random() % (script.last - script.first + 1);
                if (!(mark && code == 0x2581)) append_utf8(code, text);
            }
            const auto ids = tokenizer.encode(text, kPlain);
            ASSERT_EQ(tokenizer.decode(ids, true), text);
            const auto whole = tokenizer.encode(text, {.add_special = true, .parse_special = false});
            ASSERT_EQ(tokenizer.whole_text(whole), text);
            StreamDecoder decoder(tokenizer, false, true);
            std::string shown;
            for (const std::int32_t id : whole) shown += decoder.push(id);
            ASSERT_EQ(shown.append(decoder.flush()), text);
        }
    }
}

TEST(RoundTripOfScripts, Bundled) { expect_round_trips(bundled()); }

TEST(RoundTripOfScripts, SentencePieceInGguf) {
    expect_round_trips(Tokenizer::from_gguf(GgufFile::open(source_path("tests/golden/sentencepiece/tokenizer.gguf"))),
                       true);
}

TEST(RoundTripOfScripts, PublishedKinds) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const auto file = [](const char* name) {
        return read_file((test::goldens_folder() / "families/tokenizers" / name).string());
    };
    expect_round_trips(Tokenizer::from_sentencepiece(file("spm-bpe/tokenizer.model"), "bpe"), true);
    expect_round_trips(Tokenizer::from_json(file("spm-bpe/tokenizer-prepend.json"), "prepend.json"), true);
    expect_round_trips(Tokenizer::from_tekken(file("tekken/tekken.json"), "tekken"));
    const auto vectors = nlohmann::json::parse(file("tiktoken/vectors.json"));
    const RankFileSettings settings{.pattern = vectors["pattern"], .special = {}};
    expect_round_trips(Tokenizer(parse_tiktoken(file("tiktoken/ranks.tiktoken"), settings, "tiktoken")));
    expect_round_trips(Tokenizer::from_json(file("tiktoken/tokenizer.json"), "tiktoken.json"));
}

}  // namespace
}  // namespace foresay::core
