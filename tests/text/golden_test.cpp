// Real tokenizers against the ids that their own libraries give.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "support.h"

namespace foresay::core {
namespace {

using Ids = std::vector<std::int32_t>;

void expect_python_coder(const Tokenizer& tokenizer) {
    const auto golden = nlohmann::json::parse(read_file(source_path("tests/golden/python-coder-tokenizer.json")));
    ASSERT_GT(golden.size(), 30u);
    for (const auto& line : golden) {
        const std::string text = line[0];
        const Ids ids = tokenizer.encode(text, kPlain);
        EXPECT_EQ(ids, line[1].get<Ids>()) << text;
        EXPECT_EQ(tokenizer.decode(ids), text);
    }
}

TEST(Golden, PythonCoderFromGguf) { expect_python_coder(bundled()); }

TEST(Golden, PythonCoderFromJson) {
    const auto tokenizer =
        Tokenizer::from_json(std::filesystem::path(source_path("tests/golden/python-coder-hf-tokenizer.json")));
    expect_python_coder(tokenizer);
    EXPECT_TRUE(tokenizer.adds_bos());
    EXPECT_EQ(tokenizer.special().bos, 0);
}

TEST(Golden, BothFormsOfPythonCoderAgreeOnEverything) {
    const Tokenizer gguf = bundled();
    const auto json =
        Tokenizer::from_json(std::filesystem::path(source_path("tests/golden/python-coder-hf-tokenizer.json")));
    ASSERT_EQ(gguf.vocab_size(), json.vocab_size());
    for (std::int32_t id = 0; id < gguf.vocab_size(); ++id) {
        ASSERT_EQ(gguf.text(id), json.text(id)) << id;
        ASSERT_EQ(gguf.bytes(id), json.bytes(id)) << id;
        ASSERT_EQ(gguf.is_control(id), json.is_control(id)) << id;
        const std::string text(gguf.bytes(id));
        ASSERT_EQ(gguf.encode(text), json.encode(text)) << id << ' ' << text;
    }
}

TEST(Golden, PythonCoderSpecialTokens) {
    const Tokenizer tokenizer = bundled();
    EXPECT_EQ(tokenizer.vocab_size(), 16384);
    EXPECT_EQ(tokenizer.special().bos, 0);
    EXPECT_EQ(tokenizer.special().eos, 1);
    EXPECT_EQ(tokenizer.special().fim_prefix, 2);
    EXPECT_EQ(tokenizer.special().fim_middle, 3);
    EXPECT_EQ(tokenizer.special().fim_suffix, 4);
    EXPECT_TRUE(tokenizer.adds_bos());
    EXPECT_TRUE(tokenizer.is_end_of_text(1));
    EXPECT_FALSE(tokenizer.is_end_of_text(0));
    EXPECT_EQ(tokenizer.encode("<|fim_prefix|>"), (Ids{0, 2}));
    EXPECT_EQ(tokenizer.encode("<|fim_prefix|>", kParse), (Ids{2}));
    EXPECT_GT(tokenizer.encode("<|fim_prefix|>", kPlain).size(), 1u);
    EXPECT_EQ(tokenizer.decode(Ids{0, 2}), "");
    EXPECT_EQ(tokenizer.decode(Ids{0, 2}, true), "<|begin_of_text|><|fim_prefix|>");
    EXPECT_EQ(tokenizer.find("<|end_of_text|>"), 1);
    EXPECT_EQ(tokenizer.find("no such token"), std::nullopt);
}

// A vocabulary that SentencePiece's own trainer made of this project's text, and the ids that its encoder gives.
TEST(Golden, SentencePiece) {
    const auto tokenizer =
        Tokenizer::from_gguf(GgufFile::open(source_path("tests/golden/sentencepiece/tokenizer.gguf")));
    const auto golden = nlohmann::json::parse(read_file(source_path("tests/golden/sentencepiece/golden.json")));
    ASSERT_GT(golden.size(), 40u);
    EXPECT_EQ(tokenizer.special().bos, 1);
    EXPECT_TRUE(tokenizer.adds_bos());
    EXPECT_TRUE(tokenizer.is_end_of_text(2));
    for (const auto& line : golden) {
        const std::string text = line[0];
        Ids ids = tokenizer.encode(text, {.add_special = true, .parse_special = false});
        ASSERT_FALSE(ids.empty());
        EXPECT_EQ(ids.front(), 1);
        ids.erase(ids.begin());
        EXPECT_EQ(ids, line[1].get<Ids>()) << text;
        EXPECT_EQ(tokenizer.decode(ids), " " + text);
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, kPlain)), text);  // a continuation, as given
    }
}

class Vocab : public testing::TestWithParam<const char*> {};

TEST_P(Vocab, EveryLine) {
    const std::string file = "vocab/ggml-vocab-" + std::string(GetParam()) + ".gguf";
    const Tokenizer tokenizer = Tokenizer::from_gguf(GgufFile::open(FORESAY_UNPACKED_GOLDENS "/" + file));
    const std::string base = source_path("tests/golden/" + file);
    const std::string input = read_file(base + ".inp"), separator = "\n__ggml_vocab_test__\n";
    std::istringstream output(read_file(base + ".out"));
    std::string line;
    std::size_t at = 0, lines = 0;
    while (std::getline(output, line)) {
        ASSERT_LE(at, input.size()) << "more ids than texts";
        const std::size_t end = std::min(input.find(separator, at), input.size());
        const std::string text = input.substr(at, end - at);
        std::istringstream numbers(line);
        const Ids expected{std::istream_iterator<std::int32_t>(numbers), {}};
        EXPECT_EQ(tokenizer.encode(text, kPlain), expected) << text;
        EXPECT_EQ(tokenizer.decode(tokenizer.encode(text, kPlain)), text);
        at = end + separator.size();
        ++lines;
    }
    EXPECT_GE(at, input.size()) << "more texts than ids";
    EXPECT_GT(lines, 40u);
}

INSTANTIATE_TEST_SUITE_P(Published, Vocab, testing::Values("gpt-2", "deepseek-coder"), [](const auto& info) {
    std::string name = info.param;
    std::erase(name, '-');
    return name;
});

}  // namespace
}  // namespace foresay::core
