// Merging, round trips, special tokens, and effort on long inputs.
#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <thread>

#include "core/text/utf8.h"
#include "support.h"

namespace foresay::core {
namespace {

using Ids = std::vector<std::int32_t>;

// The definition, in its plainest form: the lowest-ranking adjacent pair, leftmost first, until none merges.
Ids merge_by_definition(const std::vector<std::pair<std::string, std::string>>& merges, const std::string& piece) {
    std::vector<std::string> parts;
    for (const char c : piece) parts.emplace_back(1, c);
    for (;;) {
        std::size_t best = merges.size(), at = 0;
        for (std::size_t i = 0; i + 1 < parts.size(); ++i)
            for (std::size_t rank = 0; rank < best; ++rank)
                if (merges[rank].first == parts[i] && merges[rank].second == parts[i + 1]) best = rank, at = i;
        if (best == merges.size()) break;
        parts[at] += parts[at + 1];
        parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    Ids ids;
    for (const std::string& part : parts) {
        std::int32_t id = part.size() == 1 ? static_cast<unsigned char>(part[0]) : -1;
        for (std::size_t rank = 0; rank < merges.size() && id < 0; ++rank)
            if (merges[rank].first + merges[rank].second == part) id = 256 + static_cast<std::int32_t>(rank);
        ids.push_back(id);
    }
    return ids;
}

TEST(Merging, EqualsTheDefinitionForShortAndLongPieces) {
    std::mt19937 random(1);
    for (int round = 0; round < 60; ++round) {
        std::vector<std::pair<std::string, std::string>> merges;
        std::vector<std::string> tokens = {"a", "b", "c"};
        while (merges.size() < 25) {
            const std::string left = tokens[random() % tokens.size()], right = tokens[random() % tokens.size()];
            if (left.size() + right.size() > 12) continue;
            if (std::find(tokens.begin(), tokens.end(), left + right) != tokens.end()) continue;
            merges.emplace_back(left, right);
            tokens.push_back(left + right);
        }
        const Tokenizer tokenizer(small_data(merges));
        for (const std::size_t length : {1u, 2u, 3u, 7u, 20u, 47u, 48u, 49u, 50u, 130u}) {
            std::string piece;
            for (std::size_t i = 0; i < length; ++i) piece.push_back(static_cast<char>('a' + random() % 3));
            const Ids expected = merge_by_definition(merges, piece);
            ASSERT_EQ(tokenizer.encode(piece, kPlain), expected) << piece;
            ASSERT_EQ(tokenizer.encode(piece, kPlain), expected) << "the second time";
        }
    }
}

TEST(Merging, IgnoreMergesPrefersTheWholePiece) {
    TokenizerData data = small_data({{"a", "b"}});
    const std::int32_t whole = add_token(data, "abc", TokenType::normal);
    EXPECT_EQ(Tokenizer(data).encode("abc", kPlain), (Ids{256, 'c'}));
    data.ignore_merges = true;
    EXPECT_EQ(Tokenizer(data).encode("abc", kPlain), (Ids{whole}));
}

TEST(Merging, ABlackSheepByteBecomesUnknownOrNothing) {
    TokenizerData data = small_data();
    data.tokens[0xFF] = {};
    EXPECT_EQ(Tokenizer(data).encode("a\xFF"
                                     "b",
                                     kPlain),
              (Ids{'a', 'b'}));
    data.special.unknown = add_token(data, "<unk>", TokenType::unknown);
    EXPECT_EQ(Tokenizer(data).encode("a\xFF"
                                     "b",
                                     kPlain),
              (Ids{'a', 256, 'b'}));
}

TEST(RoundTrip, AnyBytes) {
    const Tokenizer tokenizer = bundled();
    std::mt19937 random(2);
    for (int round = 0; round < 3000; ++round) {
        std::string text;
        const std::size_t length = random() % 200;
        const int kind = static_cast<int>(random() % 3);
        while (text.size() < length) {
            if (kind == 0) text.push_back(static_cast<char>(random()));
            if (kind == 1) append_utf8(random() % 0x110000, text);
            if (kind == 2) text.append(tokenizer.bytes(static_cast<std::int32_t>(random() % 16384)));
        }
        ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, kPlain), true), text);
        ASSERT_EQ(tokenizer.decode(tokenizer.encode(text, kParse), true), text);
    }
}

TEST(RoundTrip, ThreadsAgree) {
    const Tokenizer tokenizer = bundled();
    const std::string text = read_file(source_path("tests/golden/python-coder.json"));
    const Ids expected = bundled().encode(text);
    std::vector<Ids> results(4);
    std::vector<std::thread> threads;
    for (Ids& result : results) threads.emplace_back([&] { result = tokenizer.encode(text); });
    for (std::thread& thread : threads) thread.join();
    for (const Ids& result : results) EXPECT_EQ(result, expected);
}

// A quadratic algorithm would take 64 times as long for 8 times the text, and minutes for the longest.
class LongInput : public testing::TestWithParam<const char*> {};

TEST_P(LongInput, TakesLinearTime) {
    const Tokenizer tokenizer = bundled();
    const std::string unit = GetParam();
    const auto seconds = [&](std::size_t bytes) {
        std::string text;
        while (text.size() < bytes) text += unit;
        const auto start = std::chrono::steady_clock::now();
        const Ids ids = tokenizer.encode(text, kPlain);
        const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - start;
        EXPECT_EQ(tokenizer.decode(ids), text);
        return taken.count();
    };
    const double small = seconds(1 << 18), large = seconds(1 << 21);
    EXPECT_LT(large, 30 * small + 0.5);
    EXPECT_LT(large, 20.0);
}

INSTANTIATE_TEST_SUITE_P(Shapes, LongInput,
                         testing::Values("a", "ab", "abcdefghij", " ", "\n", " \t", "1", "\xC3\xA9", "\xFF",
                                         "\xE4\xB8\xAD", "!", "'", "\xF0\x9F\x98\x80", "\xE2\x80\x83",
                                         "hello world\n"));

TEST(Special, LeftmostThenLongest) {
    TokenizerData data = small_data();
    const std::int32_t shorter = add_token(data, "<x>", TokenType::control);
    const std::int32_t longer = add_token(data, "<x><y>", TokenType::control);
    const std::int32_t inner = add_token(data, "x><y>!", TokenType::control);
    const Tokenizer tokenizer(data);
    EXPECT_EQ(tokenizer.encode("<x>a", kParse), (Ids{shorter, 'a'}));
    EXPECT_EQ(tokenizer.encode("<x><y>!", kParse), (Ids{longer, '!'}));
    EXPECT_EQ(tokenizer.encode("x><y>!", kParse), (Ids{inner}));
    EXPECT_EQ(tokenizer.encode("<<x>", kParse), (Ids{'<', shorter}));
    EXPECT_EQ(tokenizer.encode("<x", kParse), (Ids{'<', 'x'}));
    EXPECT_EQ(tokenizer.encode("<x>", kPlain), (Ids{'<', 'x', '>'}));
}

TEST(Special, UserDefinedTokensAreAlwaysRecognised) {
    TokenizerData data = small_data();
    const std::int32_t spaces = add_token(data, "    ", TokenType::user_defined);
    const Tokenizer tokenizer(data);
    EXPECT_EQ(tokenizer.encode("    x", kPlain), (Ids{spaces, 'x'}));
    EXPECT_EQ(tokenizer.decode(Ids{spaces, 'x'}), "    x");
}

TEST(Special, StripAndSingleWord) {
    TokenizerData data = small_data();
    const std::int32_t strip = add_token(data, "<s>", TokenType::control);
    const std::int32_t word = add_token(data, "wd", TokenType::user_defined);
    data.added_rules = {{strip, true, true, false}, {word, false, false, true}};
    const Tokenizer tokenizer(data);
    EXPECT_EQ(tokenizer.encode("a \xE2\x80\x83<s>\n b", kParse), (Ids{'a', strip, 'b'}));
    EXPECT_EQ(tokenizer.encode("<s> <s>", kParse), (Ids{strip, strip}));
    EXPECT_EQ(tokenizer.encode("a wd.", kParse), (Ids{'a', ' ', word, '.'}));
    EXPECT_EQ(tokenizer.encode("awd", kParse), (Ids{'a', 'w', 'd'}));
    EXPECT_EQ(tokenizer.encode("wd\xC3\xA9", kParse), (Ids{'w', 'd', 0xC3, 0xA9}));
    EXPECT_EQ(tokenizer.encode("wd\xE2\x80\x94", kParse), (Ids{word, 0xE2, 0x80, 0x94}));
}

TEST(Special, EndsOfText) {
    TokenizerData data = small_data();
    const std::int32_t eot = add_token(data, "<|eot_id|>", TokenType::control);
    const std::int32_t end = add_token(data, "<|end_of_text|>", TokenType::control);
    const std::int32_t own = add_token(data, "<|my own end|>", TokenType::control);
    const std::int32_t not_control = add_token(data, "<|im_end|>", TokenType::user_defined);
    data.special.eos = end;
    data.end_of_text = {own};
    const Tokenizer tokenizer(data);
    EXPECT_TRUE(tokenizer.is_end_of_text(eot));
    EXPECT_TRUE(tokenizer.is_end_of_text(end));
    EXPECT_TRUE(tokenizer.is_end_of_text(own));
    EXPECT_FALSE(tokenizer.is_end_of_text(not_control));
    EXPECT_FALSE(tokenizer.is_end_of_text(-1));
    EXPECT_EQ(tokenizer.special().eot, eot);
    EXPECT_EQ(tokenizer.end_of_text_ids().size(), 3u);
}

TEST(Special, IdsOutsideTheVocabularyStandForNothing) {
    const Tokenizer tokenizer = bundled();
    for (const std::int32_t id : {-1, 16384, 1 << 30, -(1 << 30)}) {
        EXPECT_EQ(tokenizer.bytes(id), "");
        EXPECT_EQ(tokenizer.text(id), "");
        EXPECT_EQ(tokenizer.type(id), TokenType::unused);
        EXPECT_FALSE(tokenizer.is_end_of_text(id));
    }
}

TEST(Refusal, OfVocabulariesThatContradictThemselves) {
    const auto refuse = [](auto change) {
        TokenizerData data = small_data({{"a", "b"}});
        change(data);
        return error_of([&] { Tokenizer t(data); });
    };
    EXPECT_EQ(refuse([](TokenizerData&) {}), "");
    EXPECT_NE(refuse([](TokenizerData& d) { add_token(d, "ab", TokenType::normal); }).find("both 'ab'"),
              std::string::npos);
    EXPECT_NE(refuse([](TokenizerData& d) { add_token(d, "ab", TokenType::control); }).find("both 'ab'"),
              std::string::npos);
    EXPECT_NE(refuse([](TokenizerData& d) { d.merges.push_back({"a", "z"}); }).find("merge 1"), std::string::npos);
    EXPECT_NE(refuse([](TokenizerData& d) { d.merges.push_back({"", "a"}); }).find("merge 1"), std::string::npos);
    EXPECT_NE(refuse([](TokenizerData& d) { d.prefix = {999}; }).find("id 999"), std::string::npos);
    EXPECT_NE(refuse([](TokenizerData& d) { d.special.eos = -7; }).find("id -7"), std::string::npos);
    EXPECT_NE(refuse([](TokenizerData& d) { add_token(d, std::string(2000, 'x'), TokenType::control); }).find("longer"),
              std::string::npos);
    EXPECT_NE(refuse([](TokenizerData& d) { d.tokens.clear(), d.types.clear(); }).find("no tokens"), std::string::npos);
    EXPECT_EQ(
        refuse([](TokenizerData& d) { add_token(d, "", TokenType::unused), add_token(d, "", TokenType::unused); }), "");
}

}  // namespace
}  // namespace foresay::core
