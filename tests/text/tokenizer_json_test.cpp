// tokenizer.json: the forms that are understood, and hostile or foreign files, each with its message.
#include "core/text/tokenizer_json.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <source_location>

#include "support.h"

namespace foresay::core {
namespace {

using nlohmann::json;
using Ids = std::vector<std::int32_t>;

// All bytes, "ab" as 256, and <s> as an added special token 257.
json document() {
    json vocabulary;
    const TokenizerData data = small_data({{"a", "b"}});
    for (std::size_t id = 0; id < data.tokens.size(); ++id) vocabulary[std::string(data.tokens[id])] = id;
    return {{"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", json::array({"a b"})}}},
            {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}}},
            {"decoder", {{"type", "ByteLevel"}}},
            {"added_tokens", json::array({{{"id", 257}, {"content", "<s>"}, {"special", true}}})}};
}

Tokenizer load(const json& doc) { return Tokenizer::from_json(doc.dump(), "t.json"); }
std::string refusal(const json& doc) {
    return error_of([&] { load(doc); });
}
std::string refusal_of_text(const std::string& text) {
    return error_of([&] { Tokenizer::from_json(text, "t.json"); });
}

void expect_says(const std::string& error, std::string_view words,
                 std::source_location where = std::source_location::current()) {
    if (error.starts_with("t.json: ") && error.find(words) != std::string::npos) return;
    ADD_FAILURE_AT(where.file_name(), static_cast<int>(where.line())) << "expected: " << words << "\ngot: " << error;
}

TEST(TokenizerJson, MergesAsStringsAndAsPairs) {
    json doc = document();
    EXPECT_EQ(load(doc).encode("ab <s>"), (Ids{256, ' ', 257}));
    doc["model"]["merges"] = json::array({json::array({"a", "b"})});
    EXPECT_EQ(load(doc).encode("ab <s>"), (Ids{256, ' ', 257}));
    EXPECT_EQ(load(doc).encode("<s>", kPlain), (Ids{'<', 's', '>'}));
}

TEST(TokenizerJson, IgnoreMerges) {
    json doc = document();
    doc["model"]["merges"] = json::array();
    EXPECT_EQ(load(doc).encode("ab"), (Ids{'a', 'b'}));
    doc["model"]["ignore_merges"] = true;
    EXPECT_EQ(load(doc).encode("ab"), (Ids{256}));
}

TEST(TokenizerJson, PreTokenizers) {
    json doc = document();
    const json byte_level = {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
    const auto with = [&](json steps) {
        steps.push_back(byte_level);
        doc["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", steps}};
        return load(doc).encode("ab", kPlain).size();
    };
    EXPECT_EQ(with(json::array()), 1u);
    EXPECT_EQ(with({{{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Isolated"}}}), 2u);
    EXPECT_EQ(with({{{"type", "Split"}, {"pattern", {{"String", "b"}}}, {"behavior", "Isolated"}}}), 2u);
    EXPECT_EQ(with({{{"type", "Split"}, {"pattern", {{"String", "."}}}, {"behavior", "Isolated"}}}), 1u);
    EXPECT_EQ(with({{{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Removed"}, {"invert", true}}}),
              1u);
    EXPECT_EQ(with({{{"type", "Digits"}, {"individual_digits", true}}}), 1u);
    EXPECT_EQ(with({{{"type", "Punctuation"}, {"behavior", "Contiguous"}}}), 1u);
    expect_says(error_of([&] { with({byte_level}); }), "has steps after ByteLevel");
    expect_says(error_of([&] { with({{{"type", "UnicodeScripts"}}}); }), "'UnicodeScripts' is not supported");
    expect_says(error_of([&] { with({{{"type", "Split"}, {"pattern", {{"Regex", "("}}}}}); }), "is not understood");
    EXPECT_EQ(with({{{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Removed"}}}), 1u);
    expect_says(error_of([&] {
                    with({{{"type", "Split"}, {"pattern", {{"Regex", "a"}}}, {"behavior", "Dropped"}}});
                }),
                "splits as 'Dropped'");
}

TEST(TokenizerJson, Template) {
    json doc = document();
    const json bos = {{"SpecialToken", {{"id", "<s>"}, {"type_id", 0}}}},
               text = {{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
    const json special = {{"<s>", {{"id", "<s>"}, {"ids", {257}}, {"tokens", {"<s>"}}}}};
    doc["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {bos, text}}, {"special_tokens", special}};
    EXPECT_EQ(load(doc).encode("ab"), (Ids{257, 256}));
    EXPECT_TRUE(load(doc).adds_bos());
    doc["post_processor"]["single"] = {text, bos};
    EXPECT_EQ(load(doc).encode("ab"), (Ids{256, 257}));
    doc["post_processor"] = {{"type", "Sequence"}, {"processors", {{{"type", "ByteLevel"}}, doc["post_processor"]}}};
    EXPECT_EQ(load(doc).encode("ab"), (Ids{256, 257}));
    doc["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {text, text}}};
    expect_says(refusal(doc), "repeats the text");
    doc["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {bos}}, {"special_tokens", special}};
    expect_says(refusal(doc), "drops the text");
    doc["post_processor"] = {{"type", "TemplateProcessing"}, {"single", {bos, text}}};
    expect_says(refusal(doc), "special_tokens");
    doc["post_processor"] = {{"type", "RobertaProcessing"}};
    expect_says(refusal(doc), "'RobertaProcessing' is not supported");
}

TEST(TokenizerJson, ForeignKindsAreRefusedByName) {
    const auto with = [](const char* where, json value) {
        json doc = document();
        doc[json::json_pointer(where)] = std::move(value);
        return refusal(doc);
    };
    expect_says(with("/model/type", "WordPiece"), "model 'WordPiece' is not supported");
    expect_says(with("/model/type", "Unigram"), "not that of a Unigram model");
    expect_says(with("/model/type", 7), "'type' is not a string");
    EXPECT_EQ(with("/model/byte_fallback", true), "");
    expect_says(with("/model/end_of_word_suffix", "</w>"), "marks ends of words");
    expect_says(with("/model/continuing_subword_prefix", "##"), "marks inner subwords");
    expect_says(with("/model/dropout", 0.1), "drops merges");
    expect_says(with("/model/unk_token", "nowhere"), "model.unk_token");
    for (const char* type : {"Lowercase", "StripAccents", "BertNormalizer", "Nmt", "ByteLevel"})
        expect_says(with("/normalizer", {{"type", type}}), std::string("normalizer '") + type + "' is not supported");
    for (const char* type : {"NFC", "NFD", "NFKC", "NFKD", "Strip"})
        EXPECT_EQ(with("/normalizer", {{"type", type}}), "");
    expect_says(with("/normalizer", {{"type", "Replace"}, {"pattern", json::object()}}), "has no pattern");
    expect_says(with("/normalizer", {{"type", "Replace"}, {"pattern", {{"Regex", "("}}}}), "is not understood");
    expect_says(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "!"}}), "not base64");
    expect_says(with("/normalizer", {{"type", "Precompiled"}, {"precompiled_charsmap", "AAAA"}}), "cut off");
    expect_says(with("/pre_tokenizer", nullptr), "decoder 'ByteLevel' is not supported");
    EXPECT_EQ(with("/pre_tokenizer", {{"type", "ByteLevel"}}), "");
    expect_says(with("/decoder", {{"type", "Metaspace"}}), "its decoder is 'Metaspace'");
}

TEST(TokenizerJson, WhatWouldMakeTextsGrowIsRefused) {
    const std::string long_text(300, 'x');
    const auto with = [](const char* where, json value) {
        json doc = document();
        doc[json::json_pointer(where)] = std::move(value);
        return refusal(doc);
    };
    expect_says(with("/normalizer", {{"type", "Prepend"}, {"prepend", long_text}}), "'prepend' is longer than 256");
    expect_says(with("/normalizer", {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", long_text}}),
                "'content' is longer than 256");
    expect_says(with("/pre_tokenizer", {{"type", "Metaspace"}, {"replacement", long_text}}),
                "'replacement' is longer than 256");
    // Each step alone is small; together they make a text a million times as long.
    json doc = document();
    const json grow = {{"type", "Replace"}, {"pattern", {{"String", "a"}}}, {"content", std::string(100, 'a')}};
    doc["normalizer"] = {{"type", "Sequence"}, {"normalizers", {grow, grow, grow}}};
    const Tokenizer tokenizer = load(doc);
    EXPECT_EQ(tokenizer.encode("b", kPlain), (Ids{'b'}));
    expect_says(error_of([&] { tokenizer.encode(std::string(100, 'a')); }), "more than 64 times as long");
}

TEST(TokenizerJson, DecodersThatCannotBeFollowedAreRefused) {
    const auto with = [](json decoder) {
        json doc = document();
        doc["pre_tokenizer"] = nullptr;
        doc["decoder"] = std::move(decoder);
        return refusal(doc);
    };
    const json fuse = {{"type", "Fuse"}}, strip = {{"type", "Strip"}, {"content", " "}, {"start", 1}, {"stop", 0}};
    const auto sequence = [](json parts) { return json{{"type", "Sequence"}, {"decoders", std::move(parts)}}; };
    EXPECT_EQ(with(sequence({fuse, strip})), "");
    expect_says(with(nullptr), "has no decoder");
    expect_says(with(sequence({strip, fuse})), "'Strip before Fuse'");
    expect_says(with(sequence({fuse, {{"type", "Metaspace"}}})), "'Metaspace after Fuse'");
    expect_says(with(sequence({fuse, {{"type", "Strip"}, {"start", 0}, {"stop", 1}}})), "strips the end");
    expect_says(with({{"type", "Replace"}, {"pattern", {{"Regex", "a"}}}, {"content", ""}}), "by an expression");
    for (const char* type : {"WordPiece", "BPEDecoder", "CTC"})
        expect_says(with({{"type", type}}), std::string("decoder '") + type + "' is not supported");
}

TEST(TokenizerJson, WrongTypesAndLyingIds) {
    const auto with = [](const char* where, json value) {
        json doc = document();
        doc[json::json_pointer(where)] = std::move(value);
        return refusal(doc);
    };
    expect_says(with("/model", 3), "no object 'model'");
    expect_says(with("/model/vocab", json::array({1, 2})), "not [\"text\", score]");
    expect_says(with("/model/vocab", json::array({json::array({"a"})})), "not [\"text\", score]");
    expect_says(with("/model/vocab", json::array({json::array({"a", "b"})})), "not [\"text\", score]");
    expect_says(with("/model/vocab", json::array({json::array({"a", 1, 2})})), "not [\"text\", score]");
    expect_says(with("/model/vocab", json::array({json::array({"a", 1})})), "not that of a BPE model");
    expect_says(with("/model/vocab/a", "x"), "not a whole number");
    expect_says(with("/model/vocab/a", -1), "not a whole number");
    expect_says(with("/model/vocab/a", json::object()), "not a whole number");
    expect_says(with("/model/vocab/a", 98), "have id 98");
    expect_says(with("/model/vocab/new", 4000000), "id 4000000 among");
    expect_says(with("/model/vocab/new", 18446744073709551615u), "18446744073709551615");
    expect_says(with("/model/merges", json::array({"ab"})), "two tokens and a space");
    expect_says(with("/model/merges", json::array({"a b c"})), "two tokens and a space");
    expect_says(with("/model/merges", json::array({json::array({"a"})})), "fewer than two");
    expect_says(with("/model/merges", json::array({json::array({"a", "b", "c"})})), "more than two");
    expect_says(with("/model/merges", json::array({json::array({"a", json::array()})})), "neither");
    expect_says(with("/model/merges", json::array({1})), "neither");
    expect_says(with("/model/merges", json::array({"a zz"})), "merge 0 joins 'a' and 'zz'");
    expect_says(with("/added_tokens/0", 5), "not an object");
    expect_says(with("/added_tokens/0/id", "x"), "not a token id");
    expect_says(with("/added_tokens/0/id", 4000000), "id 4000000 among");
    expect_says(with("/added_tokens/0/id", 97), "another token");
    expect_says(with("/added_tokens/0/content", ""), "no content");
    expect_says(with("/added_tokens/0/content", "ab"), "both 'ab'");
    expect_says(with("/added_tokens/0/lstrip", 1), "'lstrip' is not true or false");
}

TEST(TokenizerJson, HostileTexts) {
    const std::string good = document().dump();
    EXPECT_EQ(refusal_of_text(good), "");
    for (std::size_t cut = 0; cut < good.size(); cut += 7)
        expect_says(refusal_of_text(good.substr(0, cut)), "not valid JSON");
    for (const char bracket : {'[', '{'}) {
        std::string deep;
        for (int i = 0; i < 2000000; ++i) deep += bracket == '[' ? "[" : "{\"a\":";
        expect_says(refusal_of_text(deep), "nests too deep");
        expect_says(refusal_of_text("{\"model\":{\"vocab\":{\"a\":" + deep), "");
        expect_says(refusal_of_text("{\"model\":{\"merges\":[" + deep), "");
        expect_says(refusal_of_text("{\"pre_tokenizer\":" + deep), "nests too deep");
    }
    std::string wide = "[0";
    for (int i = 0; i < 3000000; ++i) wide += ",0";
    expect_says(refusal_of_text(wide + "]"), "too much");
    expect_says(refusal_of_text("[]"), "not a JSON object");
    expect_says(refusal_of_text("{}"), "no object 'model'");
    expect_says(refusal_of_text("{\"model\":\"\xFF\"}"), "not valid JSON");
    expect_says(refusal_of_text(R"({"a":1,"a":2})"), "occurs twice");
    expect_says(
        refusal_of_text(
            R"({"model":{"vocab":{"a":1,"a":2}},"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false}})"),
        "both 'a'");
    expect_says(refusal_of_text(R"({"model":{"vocab":{"a":1},"vocab":{"b":2}}})"), "occurs twice");
}

// Randomly changed bytes either load or give an error message.
TEST(TokenizerJson, DamagedFilesNeverCrash) {
    const std::string good = document().dump();
    unsigned random = 1;
    int refused = 0;
    for (int round = 0; round < 1500; ++round) {
        std::string text = good;
        for (int changes = 0; changes < 3; ++changes) {
            random = random * 1664525u + 1013904223u;
            text[(random >> 8) % text.size()] = "\"{}[],:0a\\\xFF 9-"[(random >> 4) % 14];
        }
        const std::string error = refusal_of_text(text);
        if (!error.empty()) ++refused;
    }
    EXPECT_GT(refused, 500);
}

class Directory : public testing::Test {
protected:
    void SetUp() override {
        folder_ = std::filesystem::path(testing::TempDir()) / "foresay-tokenizer-directory";
        std::filesystem::remove_all(folder_);
        std::filesystem::create_directories(folder_);
    }
    void TearDown() override { std::filesystem::remove_all(folder_); }
    void write(const char* name, const std::string& text) { std::ofstream(folder_ / name) << text; }
    std::filesystem::path folder_;
};

TEST_F(Directory, ReadsTheSettingsBeside) {
    write("tokenizer.json", document().dump());
    EXPECT_FALSE(Tokenizer::from_directory(folder_).adds_bos());
    write("tokenizer_config.json",
          R"({"bos_token": {"content": "<s>"}, "eos_token": "ab", "add_bos_token": true,
             "chat_template": "<|im_start|>"})");
    write("generation_config.json", R"({"eos_token_id": [97, 98, 999999]})");
    write("config.json", R"({"eos_token_id": 99, "bos_token_id": 1})");
    const Tokenizer tokenizer = Tokenizer::from_directory(folder_);
    EXPECT_EQ(tokenizer.special().bos, 257);
    EXPECT_EQ(tokenizer.special().eos, 256);
    EXPECT_TRUE(tokenizer.adds_bos());
    EXPECT_EQ(tokenizer.chat_template(), "<|im_start|>");
    for (const std::int32_t id : {97, 98, 99, 256}) EXPECT_TRUE(tokenizer.is_end_of_text(id)) << id;
    EXPECT_EQ(tokenizer.end_of_text_ids().size(), 4u);
}

TEST_F(Directory, RefusesIdsBeyondTheModelsVocabulary) {
    write("tokenizer.json", document().dump());
    // Ids in the padding of the model's vocabulary are tokens that the tokenizer lacks; -1 is none.
    write("config.json", R"({"vocab_size": 320, "eos_token_id": 300, "bos_token_id": -1})");
    EXPECT_EQ(Tokenizer::from_directory(folder_).special().bos, -1);
    for (const char* name : {"config.json", "generation_config.json"}) {
        for (const char* id : {"320", "2147483648", "[97, 4294967295]", "-2"}) {
            write("config.json", R"({"vocab_size": 320})");
            write(name, R"({"vocab_size": 320, "eos_token_id": )" + std::string(id) + "}");
            const std::string error = error_of([&] { Tokenizer::from_directory(folder_); });
            EXPECT_NE(error.find(std::string(name) + ": eos_token_id is "), std::string::npos) << error;
            EXPECT_NE(error.find("but the vocabulary has 320 tokens"), std::string::npos) << error;
            std::filesystem::remove(folder_ / "generation_config.json");
        }
    }
}

TEST_F(Directory, WithoutATokenizerSaysSo) {
    EXPECT_NE(error_of([&] { Tokenizer::from_directory(folder_); }).find("has no tokenizer.json, tekken.json"),
              std::string::npos);
}

}  // namespace
}  // namespace foresay::core
