// The streaming decoder and the UTF-8 helpers under it.
#include <gtest/gtest.h>

#include <random>

#include "core/text/stream_decoder.h"
#include "core/text/utf8.h"
#include "support.h"

namespace foresay::core {
namespace {

TEST(Utf8, KnowsEveryCharacterAndNothingElse) {
    for (char32_t code = 0; code < 0x110000; ++code) {
        std::string text;
        append_utf8(code, text);
        const Utf8Step step = next_utf8(text);
        const bool surrogate = code >= 0xD800 && code <= 0xDFFF;
        ASSERT_EQ(step.status, Utf8Status::valid);
        ASSERT_EQ(step.length_bytes, text.size());
        ASSERT_EQ(step.code, surrogate ? 0xFFFDu : code);
        for (std::size_t cut = 1; cut < text.size(); ++cut)
            ASSERT_EQ(next_utf8(text.substr(0, cut)).status, Utf8Status::incomplete);
    }
    for (const char* bad : {"\x80", "\xBF", "\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                            "\xF4\x90\x80\x80", "\xF5\x80", "\xFF", "\xC3x", "\xE4\xBDx"})
        EXPECT_EQ(next_utf8(bad).status, Utf8Status::invalid) << bad;
}

TEST(Utf8, MaximalSubparts) {
    const std::string r(kReplacementCharacter);
    // The example of the Unicode standard, table 3-8 and its neighbours.
    EXPECT_EQ(to_valid_utf8("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82"
                            "A"),
              r + r + r + r + r + r + r + r + "A");
    EXPECT_EQ(to_valid_utf8("\xED\xA0\x80\xED\xBF\xBF\xED\xAF"
                            "A"),
              r + r + r + r + r + r + r + r + "A");
    EXPECT_EQ(to_valid_utf8("\xF4\x91\x92\x93\xFF"
                            "A\x80\xBF"
                            "B"),
              r + r + r + r + r + "A" + r + r + "B");
    EXPECT_EQ(to_valid_utf8("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF"
                            "A"),
              r + r + r + r + "A");
    EXPECT_EQ(to_valid_utf8("ok\xE4\xBD"), "ok" + r);
}

TEST(StreamDecoder, EverySplitGivesTheSameWholeCharacters) {
    const Tokenizer tokenizer = bundled();
    const std::string texts[] = {"a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80z",
                                 "\xF0\x9F\x98"
                                 "a\xC3\xC3\xA9\x80\xFF",
                                 "\xF0\x9F\x98\x80\xF0\x9F", "\xE4\xBD\xA0", ""};
    for (const std::string& text : texts) {
        const std::string expected = to_valid_utf8(text);
        ASSERT_LE(text.size(), 16u);
        for (unsigned splits = 0; splits < (1u << text.size()); ++splits) {
            StreamDecoder decoder(tokenizer);
            std::string shown, part;
            for (std::size_t i = 0; i < text.size(); ++i) {
                part.push_back(text[i]);
                if (!(splits >> i & 1)) continue;
                const std::string_view out = decoder.push_bytes(part);
                ASSERT_TRUE(is_valid_utf8(out));
                ASSERT_LE(decoder.pending().size(), 3u);
                shown.append(out);
                part.clear();
            }
            shown.append(decoder.push_bytes(part));
            shown.append(decoder.flush());
            ASSERT_EQ(shown, expected);
        }
    }
}

TEST(StreamDecoder, TokensOneByOneEqualTheWholeText) {
    const Tokenizer tokenizer = bundled();
    std::mt19937 random(3);
    for (int round = 0; round < 300; ++round) {
        std::vector<std::int32_t> ids;
        for (int i = 0; i < 60; ++i)  // many byte tokens, so that characters break across tokens
            ids.push_back(static_cast<std::int32_t>(random() % (round % 2 ? 300 : 16384)));
        StreamDecoder decoder(tokenizer);
        std::string shown;
        for (const std::int32_t id : ids) {
            const std::string_view out = decoder.push(id);
            ASSERT_TRUE(is_valid_utf8(out));
            shown.append(out);
        }
        shown.append(decoder.flush());
        ASSERT_EQ(shown, to_valid_utf8(tokenizer.decode(ids)));
    }
}

TEST(StreamDecoder, HoldsBackOnlyWhatMayBecomeACharacter) {
    StreamDecoder decoder(bundled());
    EXPECT_EQ(decoder.push_bytes("a\xF0\x9F"), "a");
    EXPECT_EQ(decoder.pending(), "\xF0\x9F");
    EXPECT_EQ(decoder.push_bytes("x"), std::string(kReplacementCharacter) + "x");
    EXPECT_EQ(decoder.push_bytes("\xE4"), "");
    EXPECT_EQ(decoder.flush(), kReplacementCharacter);
    EXPECT_EQ(decoder.flush(), "");
}

TEST(StreamDecoder, ControlTokensShowOnRequest) {
    const Tokenizer tokenizer = bundled();
    EXPECT_EQ(StreamDecoder(tokenizer).push(1), "");
    StreamDecoder all(tokenizer, true);
    EXPECT_EQ(all.push(1), "<|end_of_text|>");
}

}  // namespace
}  // namespace foresay::core
