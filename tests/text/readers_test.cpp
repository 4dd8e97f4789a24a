// tokenizer.model, tekken.json and tiktoken rank files: what is read, and what is refused with which sentence.
#include <gtest/gtest.h>

#include <bit>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <source_location>

#include "core/text/tokenizer_ranks.h"
#include "support.h"

namespace foresay::core {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

void expect_says(const std::string& error, std::string_view words,
                 std::source_location where = std::source_location::current()) {
    if (error.starts_with("t: ") && error.find(words) != std::string::npos) return;
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line())) << "expected: " << words << "\ngot: " << error;
}

// ---- tokenizer.model

std::string varint(std::uint64_t value) {
    std::string out;
    for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
    return out + static_cast<char>(value);
}
std::string number(int field, std::int64_t value) {
    return varint(static_cast<std::uint64_t>(field) << 3) + varint(static_cast<std::uint64_t>(value));
}
std::string bytes(int field, std::string_view value) {
    return varint(static_cast<std::uint64_t>(field) << 3 | 2) + varint(value.size()) + std::string(value);
}
std::string piece(std::string_view text, float score, int type) {
    std::string real;
    const auto bits = std::bit_cast<std::uint32_t>(score);
    for (int i = 0; i < 4; ++i) real.push_back(static_cast<char>(bits >> (8 * i)));
    return bytes(1, bytes(1, text) + varint(2 << 3 | 5) + real + number(3, type));
}
// <unk> 0, <s> 1, </s> 2, U+2581 3, a 4, b 5, ab 6, U+2581 a 7, two spaces 8 (added), and what `more` says.
std::string model(int type, const std::string& more = "", const std::string& trainer = "",
                  const std::string& normalizer = "") {
    const std::string space = "\u2581";
    return piece("<unk>", 0, 2) + piece("<s>", 0, 3) + piece("</s>", 0, 3) + piece(space, -4, 1) + piece("a", -5, 1) +
           piece("b", -6, 1) + piece("ab", -1, 1) + piece(space + "a", -2, 1) + piece(space + space, 0, 4) + more +
           bytes(2, number(3, type) + trainer) + bytes(3, normalizer);
}
Tokenizer load(const std::string& bytes) { return Tokenizer::from_sentencepiece(bytes, "t"); }
std::string refusal(const std::string& bytes) {
    return error_of([&] { load(bytes); });
}
const std::string kPlainNormalizer = number(4, 0);  // spaces are not joined

TEST(SentencePieceModel, Bpe) {
    const Tokenizer tokenizer = load(model(2, "", "", kPlainNormalizer));
    EXPECT_EQ(tokenizer.encode("ab"), (Ids{1, 3, 6}));
    EXPECT_EQ(tokenizer.encode("aa"), (Ids{1, 7, 4}));
    EXPECT_EQ(tokenizer.encode("aXYb", kPlain), (Ids{4, 0, 5})) << "one unknown token for both";
    EXPECT_EQ(tokenizer.encode("a  b", kPlain), (Ids{4, 8, 5})) << "user-defined pieces are found after escaping";
    EXPECT_EQ(tokenizer.encode("<s>a", kParse), (Ids{1, 7}));
    EXPECT_EQ(tokenizer.decode(Ids{7, 5}), " ab");
    EXPECT_EQ(tokenizer.whole_text(Ids{7, 5}), "ab");
    EXPECT_EQ(tokenizer.whole_text(Ids{1, 8, 5}), " b");
    EXPECT_TRUE(tokenizer.adds_bos());
    EXPECT_TRUE(tokenizer.is_end_of_text(2));
}

TEST(SentencePieceModel, UnigramJoinsSpacesAndEndsTheText) {
    const Tokenizer tokenizer = load(model(1));
    EXPECT_EQ(tokenizer.encode("  ab   a "), (Ids{3, 6, 7, 2}));
    EXPECT_EQ(tokenizer.encode("   "), (Ids{2}));
    EXPECT_EQ(tokenizer.encode(" a", kPlain), (Ids{7})) << "a continuation keeps its space";
    EXPECT_FALSE(tokenizer.adds_bos());
}

TEST(SentencePieceModel, SettingsOfTheTrainer) {
    EXPECT_EQ(load(model(2, "", number(41, -1), kPlainNormalizer)).special().bos, -1);
    EXPECT_EQ(load(model(2, "", number(41, 2) + number(42, 1), kPlainNormalizer)).special().bos, 2);
    EXPECT_EQ(load(model(2, "", number(41, 4), kPlainNormalizer)).special().bos, -1) << "not a control piece";
    EXPECT_EQ(load(model(2, "", "", kPlainNormalizer + number(3, 0))).encode("aa"), (Ids{1, 4, 4})) << "no prefix";
    std::string all;
    for (int byte = 0; byte < 256; ++byte) {
        char name[8];
        std::snprintf(name, sizeof name, "<0x%02X>", byte);
        all += piece(name, 0, 6);
    }
    const Tokenizer bytes_too = load(model(2, all, "", kPlainNormalizer));
    EXPECT_EQ(bytes_too.encode("X\xFF", kPlain), (Ids{9 + 'X', 9 + 0xFF}));
    EXPECT_EQ(bytes_too.decode(Ids{9 + 'X', 9 + 0xFF}), "X\xFF");
}

TEST(SentencePieceModel, RefusesWithASentence) {
    expect_says(refusal(""), "no pieces");
    expect_says(refusal(model(3)), "whole words");
    expect_says(refusal(model(4)), "whole characters");
    expect_says(refusal(model(9)), "type 9");
    expect_says(refusal(model(2, piece("x", 0, 7))), "piece 9 is of type 7");
    expect_says(refusal(model(2, piece("", 0, 1))), "piece 9 is empty");
    expect_says(refusal(model(2, piece("a", 0, 1))), "both 'a'");
    expect_says(refusal(model(1, piece("x", std::numeric_limits<float>::quiet_NaN(), 1))), "not a finite number");
    expect_says(refusal(model(2, "", number(24, 1))), "after words");
    expect_says(refusal(model(2, "", "", number(5, 0))), "does not escape");
    expect_says(refusal(model(2) + bytes(5, bytes(2, "x"))), "denormalizer");
    expect_says(refusal(model(1, "", "", bytes(2, "xx"))), "cut off");
    expect_says(refusal(model(1, "", "", bytes(2, std::string("\xFF\xFF\xFF\x7F", 4)))), "cut off");
    expect_says(refusal(model(2, piece(std::string(600, 'a'), 0, 1))), "600 bytes long");
    const std::string good = model(2, "", "", kPlainNormalizer);
    EXPECT_EQ(refusal(good), "");
    std::size_t refused = 0;
    for (std::size_t cut = 1; cut < good.size(); ++cut) refused += refusal(good.substr(0, cut)).empty() ? 0 : 1;
    EXPECT_GT(refused, good.size() / 2);
    expect_says(refusal(good + "\x0B"), "unknown type");
    expect_says(refusal(good + std::string("\x00\x00", 2)), "no number");
    expect_says(refusal(good + "\x08" + std::string(11, '\xFF')), "too long");
    expect_says(refusal(good + bytes(1, number(1, 5))), "field 1 has the wrong type");
}

// A trie whose units all lead back to themselves, and a replacement without an end.
TEST(SentencePieceModel, ACharacterMapMadeToLoopIsBounded) {
    std::string map;
    const auto unit = [&map](std::uint32_t value) {
        for (int i = 0; i < 4; ++i) map.push_back(static_cast<char>(value >> (8 * i)));
    };
    unit(256 * 4);
    for (std::uint32_t i = 0; i < 256; ++i) unit(i);  // every byte leads to offset 0 again
    const std::string text(1 << 20, 'a');
    const std::string looping = model(1, "", "", bytes(2, map + "x"));
    EXPECT_GT(load(looping).encode(text, kPlain).size(), 0u);
    map.clear();
    unit(256 * 4);
    unit(1u << 10);  // the root leads to units from 1 on
    for (std::uint32_t i = 1; i < 256; ++i) unit(i == ('a' ^ 1u) ? ('a' | 1u << 8) : 0x80000000u);
    EXPECT_NE(error_of([&] {
                  load(model(1, "", "", bytes(2, map + std::string(1 << 16, 'y')))).encode(text, kPlain);
              }).find("more than 1024 bytes"),
              std::string::npos);
}

// ---- tiktoken

std::string base64(std::string_view text) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t i = 0; i < text.size(); i += 3) {
        std::uint32_t bits = 0;
        for (std::size_t k = 0; k < 3; ++k)
            bits = bits << 8 | (i + k < text.size() ? static_cast<unsigned char>(text[i + k]) : 0);
        for (std::size_t k = 0; k < 4; ++k) out += i + k > text.size() ? '=' : kDigits[bits >> (18 - 6 * k) & 63];
    }
    return out;
}

std::vector<std::string> rank_strings() {
    std::vector<std::string> all;
    for (int byte = 0; byte < 256; ++byte) all.emplace_back(1, static_cast<char>(byte));
    all.insert(all.end(), {"ab", "bc", "abc", "\xC3\xA9"});
    return all;
}
std::string rank_file() {
    std::string out;
    for (std::size_t rank = 0; rank < rank_strings().size(); ++rank)
        out += base64(rank_strings()[rank]) + " " + std::to_string(rank) + "\n";
    return out;
}
std::string rank_refusal(const std::string& text,
                         const RankFileSettings& settings = {.pattern = "\\S+|\\s+", .special = {}}) {
    return error_of([&] { Tokenizer(parse_tiktoken(text, settings, "t")); });
}

TEST(Tiktoken, LowestRankFirst) {
    const RankFileSettings settings{.pattern = "\\S+|\\s+", .special = {{300, "<|end|>"}}};
    const Tokenizer tokenizer(parse_tiktoken(rank_file(), settings, "t"));
    EXPECT_EQ(tokenizer.encode("abc abcc"), (Ids{258, ' ', 258, 'c'}));
    EXPECT_EQ(tokenizer.encode("bbc", kPlain), (Ids{'b', 257}));
    EXPECT_EQ(tokenizer.encode("\u00e9<|end|>", kParse), (Ids{259, 300}));
    EXPECT_EQ(tokenizer.decode(Ids{259, 258}),
              "\u00e9"
              "abc");
    EXPECT_EQ(tokenizer.vocab_size(), 301);
}

TEST(Tiktoken, RefusesWithASentence) {
    expect_says(rank_refusal(rank_file(), {}), "260 ranks, which is no known tokenizer");
    expect_says(rank_refusal("YQ== x\n"), "line 1 is not base64");
    expect_says(rank_refusal(rank_file() + "!!!! 260\n"), "line 261");
    expect_says(rank_refusal(rank_file() + "YQ== 5\n"), "two tokens have id 5");
    expect_says(rank_refusal(rank_file() + "YQ== 4000000\n"), "id 4000000");
    expect_says(rank_refusal(rank_file() + "YQ== -1\n"), "line 261");
    expect_says(rank_refusal(rank_file() + "YQ== 99999999999\n"), "line 261");
    expect_says(rank_refusal("YQ== 0\n"), "byte 0 has no rank");
    expect_says(rank_refusal(""), "no ranks");
    expect_says(rank_refusal(rank_file(), {.pattern = "(", .special = {}}), "is not understood");
}

// ---- tekken.json

json tekken() {
    json vocabulary = json::array();
    for (std::size_t rank = 0; rank < rank_strings().size(); ++rank)
        vocabulary.push_back({{"rank", rank}, {"token_bytes", base64(rank_strings()[rank])}, {"token_str", nullptr}});
    return {{"config",
             {{"pattern", "\\S+|\\s+"},
              {"num_vocab_tokens", 260},
              {"default_vocab_size", 263},
              {"default_num_special_tokens", 4}}},
            {"vocab", vocabulary},
            {"special_tokens", json::array({{{"rank", 1}, {"token_str", "<s>"}, {"is_control", true}},
                                            {{"rank", 2}, {"token_str", "</s>"}, {"is_control", true}}})}};
}
std::string tekken_refusal(const char* where, json value) {
    json document = tekken();
    document[json::json_pointer(where)] = std::move(value);
    return error_of([&] { Tokenizer::from_tekken(document.dump(), "t"); });
}

TEST(Tekken, SpecialTokensComeFirstAndRanksAreCutOff) {
    const Tokenizer tokenizer = Tokenizer::from_tekken(tekken().dump(), "t");
    EXPECT_EQ(tokenizer.encode("abc\u00e9"), (Ids{1, 262, 4 + 0xC3, 4 + 0xA9})) << "259 is beyond default_vocab_size";
    EXPECT_EQ(tokenizer.encode("</s>", kParse), (Ids{2}));
    EXPECT_TRUE(tokenizer.is_end_of_text(2));
    EXPECT_EQ(tokenizer.find("<SPECIAL_3>"), 3);
    json old = tekken();
    old.erase("special_tokens");
    EXPECT_EQ(Tokenizer::from_tekken(old.dump(), "t").find("[INST]"), 3);
}

TEST(Tekken, RefusesWithASentence) {
    expect_says(tekken_refusal("/config/pattern", 3), "no pattern");
    expect_says(tekken_refusal("/config/default_num_special_tokens", "x"), "default_num_special_tokens");
    expect_says(tekken_refusal("/config/default_num_special_tokens", 4000000), "default_num_special_tokens");
    expect_says(tekken_refusal("/config/default_vocab_size", 3), "default_vocab_size");
    expect_says(tekken_refusal("/config/default_vocab_size", 100), "byte 96 has no rank");
    expect_says(tekken_refusal("/vocab", json::array()), "no vocab");
    expect_says(tekken_refusal("/vocab", 7), "not a list");
    expect_says(tekken_refusal("/vocab/0", {{"rank", 0}}), "no token_bytes");
    expect_says(tekken_refusal("/vocab/0/token_bytes", "!"), "not base64");
    expect_says(tekken_refusal("/vocab/0/token_bytes", ""), "token 4 is empty");
    expect_says(tekken_refusal("/vocab/0/rank", 1), "two tokens have id 5");
    expect_says(tekken_refusal("/special_tokens/0/rank", 9), "rank 9 of 4");
    expect_says(error_of([] { Tokenizer::from_tekken("[]", "t"); }), "no pattern");
    expect_says(error_of([] { Tokenizer::from_tekken("7", "t"); }), "not a JSON object");
    expect_says(error_of([] { Tokenizer::from_tekken("{", "t"); }), "not valid JSON");
    expect_says(error_of([] { Tokenizer::from_tekken(std::string(1000, '['), "t"); }), "nests too deep");
}

// ---- directories

class TokenizerFiles : public testing::Test {
protected:
    void SetUp() override {
        folder_ = std::filesystem::path(testing::TempDir()) / "foresay-tokenizer-files";
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    void write(const char* name, const std::string& text) { std::ofstream(folder_ / name, std::ios::binary) << text; }
    Ids encode() const { return Tokenizer::from_directory(folder_).encode("abc", kPlain); }
    std::filesystem::path folder_;
};

TEST_F(TokenizerFiles, AreFoundByNameAndContent) {
    EXPECT_FALSE(Tokenizer::has_tokenizer(folder_));
    write("qwen.tiktoken", rank_file());
    EXPECT_TRUE(Tokenizer::has_tokenizer(folder_));
    EXPECT_NE(error_of([&] { encode(); }).find("'pattern' of the tokenizer_config.json"), std::string::npos);
    write("tokenizer_config.json", R"({"pattern": "\\S+", "added_tokens_decoder": {"300": {"content": "<|x|>"}}})");
    EXPECT_EQ(encode(), (Ids{258}));
    EXPECT_EQ(Tokenizer::from_directory(folder_).find("<|x|>"), 300);
    write("tokenizer.model", rank_file());  // some are rank files by another name
    EXPECT_EQ(encode(), (Ids{258}));
    write("tokenizer.model", model(2, "", "", kPlainNormalizer));
    EXPECT_EQ(encode(), (Ids{6, 0}));
    write("tekken.json", tekken().dump());
    EXPECT_EQ(encode(), (Ids{262}));
    EXPECT_EQ(Tokenizer::open(folder_ / "tokenizer.model").encode("abc", kPlain), (Ids{6, 0}));
    EXPECT_EQ(Tokenizer::open(folder_ / "qwen.tiktoken").encode("abc", kPlain), (Ids{258}));
    write("tokenizer_config.json", R"({"pattern": "\\S+", "added_tokens_decoder": {"x": {"content": "<|x|>"}}})");
    EXPECT_NE(error_of([&] { Tokenizer::open(folder_ / "qwen.tiktoken"); }).find("'x' is no token id"),
              std::string::npos);
}

TEST_F(TokenizerFiles, TheSettingsBesideDecideBosAndEos) {
    write("tokenizer.model", model(2, "", "", kPlainNormalizer));
    EXPECT_EQ(Tokenizer::from_directory(folder_).encode("ab"), (Ids{1, 3, 6}));
    write("tokenizer_config.json", R"({"add_bos_token": false, "add_eos_token": true})");
    EXPECT_EQ(Tokenizer::from_directory(folder_).encode("ab"), (Ids{3, 6, 2}));
}

TEST_F(TokenizerFiles, TokensAddedToASentencePieceModel) {
    write("tokenizer.model", model(2, "", "", kPlainNormalizer));
    write("tokenizer_config.json",
          R"({"added_tokens_decoder": {"1": {"content": "<s>", "special": true},
              "9": {"content": "<|im_end|>", "special": true}, "11": {"content": "ADD", "lstrip": true}}})");
    const Tokenizer tokenizer = Tokenizer::from_directory(folder_);
    EXPECT_EQ(tokenizer.encode("a ADDb<|im_end|>", kParse), (Ids{4, 11, 3, 5, 9}));
    EXPECT_TRUE(tokenizer.is_end_of_text(9));
    EXPECT_EQ(tokenizer.vocab_size(), 12);
    write("tokenizer_config.json", R"({"added_tokens_decoder": {"90000": {"content": "x"}}})");
    EXPECT_NE(error_of([&] { Tokenizer::from_directory(folder_); }).find("adds 'x' as token 90000"), std::string::npos);
}

}  // namespace
}  // namespace foresay::core
