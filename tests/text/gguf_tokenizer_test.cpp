// What a GGUF file says about its tokenizer, and what is refused.
#include <gtest/gtest.h>

#include <cstring>

#include "support.h"

namespace foresay::core {
namespace {

using Ids = std::vector<std::int32_t>;

// A GGUF file of metadata only.
class Metadata {
public:
    Metadata& string(std::string_view key, std::string_view value) {
        begin(key, 8);
        put_string(value);
        return *this;
    }
    Metadata& number(std::string_view key, std::uint32_t value) {
        begin(key, 4);
        put(value);
        return *this;
    }
    Metadata& flag(std::string_view key, bool value) {
        begin(key, 7);
        bytes_.push_back(value ? 1 : 0);
        return *this;
    }
    Metadata& strings(std::string_view key, const std::vector<std::string>& values) {
        begin(key, 9);
        put(std::uint32_t{8});
        put(std::uint64_t{values.size()});
        for (const std::string& value : values) put_string(value);
        return *this;
    }
    Metadata& floats(std::string_view key, const std::vector<float>& values) {
        begin(key, 9);
        put(std::uint32_t{6});
        put(std::uint64_t{values.size()});
        for (const float value : values) put(value);
        return *this;
    }
    Metadata& types(const std::vector<std::int32_t>& values) {
        begin("tokenizer.ggml.token_type", 9);
        put(std::uint32_t{5});
        put(std::uint64_t{values.size()});
        for (const std::int32_t value : values) put(value);
        return *this;
    }
    template <class Use>
    auto with(Use use) const {
        std::string image = "GGUF";
        const auto append = [&image](auto value) { image.append(reinterpret_cast<const char*>(&value), sizeof value); };
        append(std::uint32_t{3});
        append(std::uint64_t{0});
        append(count_);
        image += bytes_;
        image.resize((image.size() + 31) / 32 * 32);
        return use(GgufFile::from_memory(std::as_bytes(std::span(image)), "m.gguf"));
    }
    Tokenizer load() const {
        return with([](const GgufFile& file) { return Tokenizer::from_gguf(file); });
    }
    std::string refusal() const {
        return error_of([&] { load(); });
    }

private:
    template <class T>
    void put(T value) {
        bytes_.append(reinterpret_cast<const char*>(&value), sizeof value);
    }
    void put_string(std::string_view text) {
        put(std::uint64_t{text.size()});
        bytes_ += text;
    }
    void begin(std::string_view key, std::uint32_t type) {
        put_string(key);
        put(type);
        ++count_;
    }
    std::string bytes_;
    std::uint64_t count_ = 0;
};

// All bytes, "ab" as 256, <s> 257, </s> 258.
Metadata small(const char* pre = "gpt-2", const char* model = "gpt2") {
    const TokenizerData data = small_data({{"a", "b"}});
    std::vector<std::string> tokens(data.tokens.begin(), data.tokens.end());
    std::vector<std::int32_t> types(tokens.size(), 1);
    tokens.insert(tokens.end(), {"<s>", "</s>"});
    types.insert(types.end(), {3, 3});
    Metadata out;
    out.string("tokenizer.ggml.model", model).string("tokenizer.ggml.pre", pre);
    return out.strings("tokenizer.ggml.tokens", tokens).types(types);
}

Metadata merged(const char* pre = "gpt-2") { return small(pre).strings("tokenizer.ggml.merges", {"a b"}); }

TEST(GgufTokenizer, BosAndEosAsTheFileOrThePreTokenizerSays) {
    const auto named = [](const char* pre) {
        return merged(pre).number("tokenizer.ggml.bos_token_id", 257).number("tokenizer.ggml.eos_token_id", 258);
    };
    EXPECT_EQ(named("gpt-2").load().encode("ab"), (Ids{256}));
    EXPECT_EQ(named("llama-bpe").load().encode("ab"), (Ids{257, 256}));
    EXPECT_EQ(named("llama-bpe").flag("tokenizer.ggml.add_bos_token", false).load().encode("ab"), (Ids{256}));
    EXPECT_EQ(named("gpt-2").flag("tokenizer.ggml.add_bos_token", true).load().encode("ab"), (Ids{257, 256}));
    EXPECT_EQ(named("gpt-2").flag("tokenizer.ggml.add_eos_token", true).load().encode("ab"), (Ids{256, 258}));
    EXPECT_EQ(merged().flag("tokenizer.ggml.add_bos_token", true).load().encode("ab"), (Ids{256})) << "no BOS to add";
    EXPECT_EQ(merged().number("tokenizer.ggml.padding_token_id", 4294967295u).load().special().pad, -1);
    EXPECT_EQ(named("gpt-2").string("tokenizer.chat_template", "T").load().chat_template(), "T");
    const Tokenizer several =
        named("gpt-2").string("tokenizer.chat_template", "T").string("tokenizer.chat_template.tool_use", "U").load();
    ASSERT_EQ(several.chat_templates().size(), 2U);
    EXPECT_EQ(several.chat_template(), "T");
    EXPECT_EQ(several.chat_templates()[1].name, "tool_use");
    EXPECT_EQ(several.chat_templates()[1].source, "U");
}

// A wrong BOS or EOS would change every text, or never end one.
TEST(GgufTokenizer, BosAndEosOutsideTheVocabularyAreRefused) {
    for (const std::string key : {"tokenizer.ggml.bos_token_id", "tokenizer.ggml.eos_token_id"}) {
        for (const std::uint32_t id : {259u, 1u << 31, 4294967295u}) {
            EXPECT_EQ(merged().number(key, id).refusal(),
                      "m.gguf: " + key + " is " + std::to_string(id) +
                          ", but the vocabulary has 259 tokens; get or convert the model again");
        }
        EXPECT_EQ(merged().number(key, 258).refusal(), "");
    }
}

TEST(GgufTokenizer, TypesDecideWhatTextReaches) {
    const Tokenizer tokenizer = merged().load();
    EXPECT_TRUE(tokenizer.is_control(257));
    EXPECT_FALSE(tokenizer.is_control(256));
    EXPECT_EQ(tokenizer.encode("<s>", kParse), (Ids{257}));
    EXPECT_EQ(tokenizer.encode("<s>", kPlain), (Ids{'<', 's', '>'}));
}

// <unk> 0, <s> 1, </s> 2, <0x41> 3, <0xC3> 4, <0xA9> 5, then U+2581 6, a 7, b 8, ab 9, bb 10, U+2581 a 11, abb 12.
Metadata pieces(std::vector<float> scores = {0, 0, 0, 0, 0, 0, -7, -8, -9, -1, -2, -3, -4}) {
    const std::string space = "\u2581";
    Metadata out;
    out.string("tokenizer.ggml.model", "llama");
    out.strings("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x41>", "<0xC3>", "<0xA9>", space, "a", "b", "ab",
                                          "bb", space + "a", "abb"});
    out.types({2, 3, 3, 6, 6, 6, 1, 1, 1, 1, 1, 1, 1}).floats("tokenizer.ggml.scores", scores);
    out.number("tokenizer.ggml.bos_token_id", 1).number("tokenizer.ggml.eos_token_id", 2);
    return out.number("tokenizer.ggml.unknown_token_id", 0);
}

TEST(GgufTokenizer, SentencePieceMergesTheBestScoreFirst) {
    const Tokenizer tokenizer = pieces().load();
    EXPECT_EQ(tokenizer.encode("ab", kPlain), (Ids{9}));
    EXPECT_EQ(tokenizer.encode("abb", kPlain), (Ids{12}));
    EXPECT_EQ(tokenizer.encode("bbb", kPlain), (Ids{10, 8})) << "the leftmost of equals";
    EXPECT_EQ(tokenizer.encode(" ab", kPlain), (Ids{6, 9})) << "ab scores higher than a with its space";
    EXPECT_EQ(tokenizer.encode(" aa", kPlain), (Ids{11, 7}));
    // With other scores the same text falls elsewhere.
    EXPECT_EQ(pieces({0, 0, 0, 0, 0, 0, -7, -8, -9, -3, -2, -1, -4}).load().encode(" ab", kPlain), (Ids{11, 8}));
    // Long pieces take another way to the same tokens.
    std::string text;
    Ids expected;
    for (int i = 0; i < 40; ++i) {
        text += "abb aA";
        expected.insert(expected.end(), {12, 11, 3});
    }
    EXPECT_EQ(tokenizer.encode(text, kPlain), expected);
}

TEST(GgufTokenizer, SentencePieceFallsBackToBytesAndAddsItsSpace) {
    const Tokenizer tokenizer = pieces().load();
    EXPECT_EQ(tokenizer.encode("A", kPlain), (Ids{3}));
    EXPECT_EQ(tokenizer.encode("\u00e9", kPlain), (Ids{4, 5}));
    EXPECT_EQ(tokenizer.decode(Ids{4, 5, 3}), "\u00e9A");
    EXPECT_EQ(tokenizer.encode("Z", kPlain), (Ids{0})) << "no token for the byte";
    EXPECT_EQ(tokenizer.encode("aa"), (Ids{1, 11, 7}));
    EXPECT_EQ(tokenizer.encode(""), (Ids{1}));
    EXPECT_EQ(tokenizer.encode("b</s>b"), (Ids{1, 6, 8, 2, 6, 8})) << "after a special token as well";
    EXPECT_EQ(pieces().flag("tokenizer.ggml.add_space_prefix", false).load().encode("aa"), (Ids{1, 7, 7}));
    EXPECT_EQ(pieces().flag("tokenizer.ggml.add_bos_token", false).load().encode("aa"), (Ids{11, 7}));
}

TEST(GgufTokenizer, SentencePieceRefusesWithASentence) {
    EXPECT_NE(pieces({1, 2}).refusal().find("2 entries for 13 tokens"), std::string::npos);
    Metadata bare;
    bare.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", {"a"}).types({1});
    EXPECT_NE(bare.refusal().find("tokenizer.ggml.scores"), std::string::npos);
    Metadata endless;
    endless.string("tokenizer.ggml.model", "llama").strings("tokenizer.ggml.tokens", {std::string(600, 'a')});
    EXPECT_NE(endless.types({1}).floats("tokenizer.ggml.scores", {0}).refusal().find("600 bytes long"),
              std::string::npos);
}

// <pad> 0, </s> 1, <unk> 2, U+2581 3, a 4, b 5, ab 6, U+2581 a 7.
Metadata unigram() {
    const std::string space = "\u2581";
    Metadata out;
    out.string("tokenizer.ggml.model", "t5");
    out.strings("tokenizer.ggml.tokens", {"<pad>", "</s>", "<unk>", space, "a", "b", "ab", space + "a"});
    out.types({3, 3, 2, 1, 1, 1, 1, 1}).floats("tokenizer.ggml.scores", {0, 0, 0, -3, -4, -5, -6, -2});
    return out.number("tokenizer.ggml.eos_token_id", 1).number("tokenizer.ggml.unknown_token_id", 2);
}

TEST(GgufTokenizer, UnigramChoosesTheHighestSum) {
    const Tokenizer tokenizer = unigram().load();
    EXPECT_EQ(tokenizer.encode("ab"), (Ids{7, 5, 1})) << "-2 - 5 beats -3 - 6";
    EXPECT_EQ(tokenizer.encode("ab", kPlain), (Ids{6})) << "-6 beats -4 - 5";
    EXPECT_EQ(tokenizer.encode("a??b", kPlain), (Ids{4, 2, 5})) << "neighbouring unknown characters are one";
    EXPECT_EQ(tokenizer.encode("a  b", kPlain), (Ids{4, 3, 3, 5}));
    EXPECT_EQ(unigram().flag("tokenizer.ggml.remove_extra_whitespaces", true).load().encode("  a  b "),
              (Ids{7, 3, 5, 1}));
    EXPECT_EQ(unigram().flag("tokenizer.ggml.add_space_prefix", false).load().encode("ab"), (Ids{6, 1}));
    EXPECT_EQ(unigram().flag("tokenizer.ggml.add_eos_token", false).load().encode("ab"), (Ids{7, 5}));
    EXPECT_EQ(tokenizer.whole_text(Ids{7, 5}), "ab");
    EXPECT_NE(unigram().flag("tokenizer.ggml.precompiled_charsmap", true).refusal(), "");
}

TEST(GgufTokenizer, Gemma4EscapesSpacesAndCutsAtLineEnds) {
    const std::string space = "\u2581";
    Metadata file;
    file.string("tokenizer.ggml.model", "gemma4").string("tokenizer.ggml.pre", "gemma4");
    file.strings("tokenizer.ggml.tokens",
                 {"<pad>", "<bos>", "a", "b", space, space + "a", "\n", "\n\n", "<0xC3>", "<0xA9>", "a\n", "  "});
    file.types({3, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4}).number("tokenizer.ggml.bos_token_id", 1);
    file.strings("tokenizer.ggml.merges", {space + " a", "\n \n", "a \n"});
    const Tokenizer tokenizer = file.load();
    EXPECT_EQ(tokenizer.encode("a ab"), (Ids{1, 2, 5, 3})) << "no space before the text";
    EXPECT_EQ(tokenizer.encode("a\n\n", kPlain), (Ids{2, 7})) << "a line end stands apart";
    EXPECT_EQ(tokenizer.encode("\u00e9", kPlain), (Ids{8, 9}));
    EXPECT_EQ(tokenizer.encode("a  b", kPlain), (Ids{2, 11, 3})) << "user-defined tokens hold real spaces";
    EXPECT_EQ(tokenizer.decode(Ids{5, 8, 9, 11}), " a\u00e9  ");
}

TEST(GgufTokenizer, RefusesWithASentence) {
    EXPECT_NE(Metadata().refusal().find("m.gguf: the file has no tokenizer"), std::string::npos);
    EXPECT_FALSE(Metadata().with([](const GgufFile& file) { return Tokenizer::has_tokenizer(file); }));
    EXPECT_NE(small("gpt-2", "bert").refusal().find("'bert'"), std::string::npos);
    EXPECT_NE(small("gpt-2", "t5").refusal().find("tokenizer.ggml.scores"), std::string::npos);
    EXPECT_NE(small("gpt-2", "gemma4").refusal().find("'gpt-2' does not belong to"), std::string::npos);
    EXPECT_NE(merged("gemma4").refusal().find("'gemma4' does not belong to"), std::string::npos);
    EXPECT_NE(small("made-up").refusal().find("'made-up'"), std::string::npos);
    EXPECT_NE(small().refusal().find("no merges"), std::string::npos);
    EXPECT_NE(small().strings("tokenizer.ggml.merges", {"ab"}).refusal().find("two tokens"), std::string::npos);
    EXPECT_NE(small().strings("tokenizer.ggml.merges", {""}).refusal().find("two tokens"), std::string::npos);
    EXPECT_NE(small().strings("tokenizer.ggml.merges", {"a c"}).refusal().find("merge 0"), std::string::npos);
    const Metadata few = Metadata().strings("tokenizer.ggml.tokens", {"a"}).types({1, 1});
    EXPECT_NE(few.refusal().find("2 entries for 1 tokens"), std::string::npos);
    EXPECT_NE(Metadata().number("tokenizer.ggml.tokens", 7).refusal(), "");
}

}  // namespace
}  // namespace foresay::core
