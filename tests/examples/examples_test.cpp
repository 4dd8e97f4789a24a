// The examples do what they say: they print what the program prints with the same models, chain and seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/app/program.h"

namespace foresay::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

std::string target() { return source("models/python-coder/target-q4_k_m.gguf"); }
std::string draft() { return source("models/python-coder/draft-q8_0.gguf"); }

// What an example prints to standard output; `arguments` for a shell.
std::string example(const std::string& name, const std::string& arguments, int* status = nullptr) {
    const std::string command = EXAMPLE_FOLDER "/" + name + " " + arguments + " 2>/dev/null";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    std::string out;
    std::array<char, 4096> chunk{};
    while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe)) out.append(chunk.data(), got);
    const int ended = ::pclose(pipe);
    if (status) *status = WEXITSTATUS(ended);
    EXPECT_TRUE(status || ended == 0) << command;
    return out;
}

std::string complete(const std::string& prompt, const std::vector<std::string>& more,
                     const std::string& model = target()) {
    std::vector<std::string> arguments = {"complete", "--model", model, "-p", prompt};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return outcome.out;
}

// The characters that a byte-level vocabulary writes for the bytes 0 to 255.
std::vector<std::string> byte_characters() {
    std::vector<std::string> all;
    for (int byte = 0, other = 256; byte < 256; ++byte) {
        const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
        const int character = printable ? byte : other++;
        all.push_back(character < 128 ? std::string(1, static_cast<char>(character))
                                      : std::string{static_cast<char>(0xc0 | character >> 6),
                                                    static_cast<char>(0x80 | (character & 0x3f))});
    }
    return all;
}

// A safetensors model with a tokenizer of 254 bytes: the id of byte b is b + 2. `end` ends a text besides </s>.
std::string safetensors(const std::string& name, int end = -1) {
    namespace fs = std::filesystem;
    const fs::path folder = scratch() / name;
    fs::create_directories(folder);
    for (const char* file : {"config.json", "model.safetensors"}) {
        fs::copy_file(source("tests/golden/tiny/llama3/" + std::string(file)), folder / file,
                      fs::copy_options::overwrite_existing);
    }
    nlohmann::json vocabulary = {{"<s>", 0}, {"</s>", 1}};
    const std::vector<std::string> characters = byte_characters();
    for (int byte = 0; byte < 254; ++byte) vocabulary[characters[static_cast<std::size_t>(byte)]] = byte + 2;
    const nlohmann::json tokenizer = {
        {"added_tokens",
         {{{"id", 0}, {"content", "<s>"}, {"special", true}}, {{"id", 1}, {"content", "</s>"}, {"special", true}}}},
        {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}}},
        {"decoder", {{"type", "ByteLevel"}}},
        {"model", {{"type", "BPE"}, {"vocab", vocabulary}, {"merges", nlohmann::json::array()}}}};
    write_scratch(name + "/tokenizer.json", tokenizer.dump());
    nlohmann::json ends = {1};
    if (end >= 0) ends.push_back(end);
    write_scratch(name + "/generation_config.json", nlohmann::json{{"eos_token_id", ends}}.dump());
    return folder.string();
}

std::string models(const std::string& model, const std::string& draft_model) {
    return "target.model = \"" + model + "\"\ndraft.model = \"" + draft_model + "\"\n";
}

// A configuration for embed, and one for batch.
std::string configuration(const std::string& model, const std::string& draft_model) {
    return write_scratch("embed.toml", models(model, draft_model) +
                                           "sampling.seed = 7\nsampling.chain = [\"top_k\", \"temperature\"]\n" +
                                           "sampling.temperature.value = 0.6\n");
}
std::string batch_configuration(const std::string& model, const std::string& draft_model) {
    return write_scratch("batch.toml", models(model, draft_model) +
                                           "sampling.seed = 1\nsampling.chain = [\"top_p\", \"temperature\"]\n");
}

const std::vector<std::string> kEmbed = {"-n",
                                         "48",
                                         "--seed",
                                         "7",
                                         "--set",
                                         "sampling.chain=[\"top_k\", \"temperature\"]",
                                         "--temperature",
                                         "0.6",
                                         "--speculation",
                                         "off"};
const std::vector<std::string> kCustom = {"-n",
                                          "64",
                                          "--seed",
                                          "3",
                                          "--set",
                                          "sampling.chain=[\"penalties\", \"min_p\", \"temperature\"]",
                                          "--set",
                                          "sampling.penalties.repeat=1.1",
                                          "--set",
                                          "sampling.min_p.p=0.05",
                                          "--temperature",
                                          "0.8"};
const std::vector<std::string> kBatch = {"-n",     "32",   "--seed", "1",
                                         "--stop", "\n\n", "--set",  "sampling.chain=[\"top_p\", \"temperature\"]"};

TEST(Examples, AreShort) {
    for (const char* name : {"embed", "custom_chain", "batch"}) {
        std::ifstream file(source("examples/" + std::string(name) + ".cpp"));
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 80) << name;
    }
}

TEST(Examples, EmbedPrintsWhatTheProgramPrints) {
    const std::string prompt = "def area(radius):\n    ";
    EXPECT_EQ(example("embed", configuration(target(), draft()) + " '" + prompt + "'"), complete(prompt, kEmbed));
    int status = 0;
    example("embed", "", &status);
    EXPECT_EQ(status, 2);
    example("embed", configuration("none.gguf", "none.gguf") + " x", &status);
    EXPECT_EQ(status, 1);
}

TEST(Examples, ReadSafetensors) {
    const std::string model = safetensors("model");
    EXPECT_EQ(example("embed", configuration(model, model) + " abc"), complete("abc", kEmbed, model));
    EXPECT_EQ(
        example("batch", batch_configuration(model, model) + " < " + write_scratch("prompts.txt", "abc\nx = 1\n")),
        "### abc\n" + complete("abc", kBatch, model) + "\n### x = 1\n" + complete("x = 1", kBatch, model) + "\n");
    const std::string bound = example("custom_chain", model + " abc");
    EXPECT_GT(bound.size(), 20u) << bound;
    EXPECT_TRUE(std::all_of(bound.begin(), bound.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
}

TEST(Examples, StopAtTokensThatEndTheText) {
    // The model above shows what comes; then a character from the middle of that becomes an end of text.
    const auto cut = [](const std::string& text, char end) { return text.substr(0, text.find(end)) + "\n"; };
    const std::string whole = example("custom_chain", safetensors("model") + " abc");
    const char end = whole.at(10);
    ASSERT_LT(cut(whole, end).size(), whole.size());
    const std::string ending = safetensors("ending", static_cast<unsigned char>(end) + 2);
    EXPECT_EQ(example("custom_chain", ending + " abc"), cut(whole, end));
    EXPECT_EQ(example("embed", configuration(ending, ending) + " abc"), complete("abc", kEmbed, ending));
    // The bundled pair ends a file itself.
    const std::string last = "if __name__ == \"__main__\":\n    main()\n";
    const std::string answer = example("custom_chain", target() + " '" + last + "'");
    EXPECT_EQ(answer, complete(last, kCustom) + "\n");
}

TEST(Examples, TheCustomStageShapesTheText) {
    // Without the stage the model goes on in letters that the stage forbids.
    const std::string prompt = "NAMES = [\"Zo\u00eb\", \"Ren\u00e9\", \"Andr\u00e9\", \"";
    const std::string bound = example("custom_chain", target() + " '" + prompt + "'");
    EXPECT_FALSE(bound.empty());
    EXPECT_TRUE(std::all_of(bound.begin(), bound.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    // Where nothing is forbidden, the stage changes nothing.
    const std::string plain = "import os\n\n\ndef ";
    EXPECT_EQ(example("custom_chain", target() + " '" + plain + "'"), complete(plain, kCustom) + "\n");
}

TEST(Examples, BatchAnswersEachPromptAsIfItWereAlone) {
    const std::vector<std::string> prompts = {"def add(a, b):", "import", "class Stack:", "import"};
    std::string input, expected;
    for (const std::string& prompt : prompts) {
        input += prompt + "\n";
        expected += "### " + prompt + "\n" + complete(prompt, kBatch) + "\n";
    }
    const std::string file = write_scratch("prompts.txt", input);
    EXPECT_EQ(example("batch", batch_configuration(target(), draft()) + " < " + file), expected);
    int status = 0;
    example("batch",
            batch_configuration(target(), FORESAY_UNPACKED_GOLDENS "/vocab/ggml-vocab-gpt-2.gguf") + " < " + file,
            &status);
    EXPECT_EQ(status, 1);
}

}  // namespace
}  // namespace foresay::testing
