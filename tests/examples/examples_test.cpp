// The examples do what they say: on the bundled pair they print what the program prints with the same chain and seed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>

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

std::string complete(const std::string& prompt, const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"complete", "--model", target(), "-p", prompt, "--context", "1024"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    return outcome.out;
}

TEST(Examples, EmbedIsShortAndPrintsWhatTheProgramPrints) {
    const std::string prompt = "def area(radius):\n    ";
    EXPECT_EQ(example("embed", target() + " " + draft() + " '" + prompt + "'"),
              complete(prompt, {"-n", "48", "--seed", "7", "--set", "sampling.chain=[\"top_k\", \"temperature\"]",
                                "--temperature", "0.6", "--speculation", "off"}));
    std::ifstream file(source("examples/embed.cpp"));
    const std::string text{std::istreambuf_iterator<char>(file), {}};
    EXPECT_LE(std::count(text.begin(), text.end(), '\n'), 50);
    int status = 0;
    example("embed", "", &status);
    EXPECT_EQ(status, 2);
    example("embed", "none.gguf none.gguf x", &status);
    EXPECT_EQ(status, 1);
}

TEST(Examples, TheCustomStageShapesTheText) {
    // Without the stage the model goes on in letters that the stage forbids.
    const std::string prompt = "NAMES = [\"Zo\u00eb\", \"Ren\u00e9\", \"Andr\u00e9\", \"";
    const std::string bound = example("custom_chain", target() + " '" + prompt + "'");
    EXPECT_FALSE(bound.empty());
    EXPECT_TRUE(std::all_of(bound.begin(), bound.end(), [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); }));
    // Where nothing is forbidden, the stage changes nothing.
    const std::string plain = "import os\n\n\ndef ";
    EXPECT_EQ(
        example("custom_chain", target() + " '" + plain + "'"),
        complete(plain, {"-n", "64", "--seed", "3", "--ignore-eos", "--set",
                         "sampling.chain=[\"penalties\", \"min_p\", \"temperature\"]", "--set",
                         "sampling.penalties.repeat=1.1", "--set", "sampling.min_p.p=0.05", "--temperature", "0.8"}) +
            "\n");
}

TEST(Examples, BatchAnswersEachPromptAsIfItWereAlone) {
    const std::vector<std::string> prompts = {"def add(a, b):", "import", "class Stack:", "import"};
    std::string input, expected;
    for (const std::string& prompt : prompts) {
        input += prompt + "\n";
        expected += "### " + prompt + "\n" +
                    complete(prompt, {"-n", "32", "--seed", "1", "--stop", "\n\n", "--set",
                                      "sampling.chain=[\"top_p\", \"temperature\"]"}) +
                    "\n";
    }
    EXPECT_EQ(example("batch", target() + " " + draft() + " < " + write_scratch("prompts.txt", input)), expected);
    int status = 0;
    example("batch", target() + " " + source("tests/golden/vocab/ggml-vocab-gpt-2.gguf") + " < /dev/null", &status);
    EXPECT_EQ(status, 1);
}

}  // namespace
}  // namespace foresay::testing
