// Options, inputs and messages of the command line, from a user's side: what a slip is answered with, what is read from
// where, and that nothing waits for what never comes.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pty.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/app/program.h"

namespace foresay::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

namespace fs = std::filesystem;

std::string target() { return source("models/python-coder/target-q4_k_m.gguf"); }

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

Outcome run_with(std::vector<std::string> arguments, std::vector<std::pair<std::string, std::string>> environment,
                 std::string input = "") {
    Call call;
    call.arguments = std::move(arguments);
    call.environment = std::move(environment);
    call.input = std::move(input);
    return run(call);
}

// What bash prints, both streams together, with $F for the program.
std::string shell(const std::string& script) {
    const std::string home = scratch().string();
    const std::string all = "export F=" FORESAY_PROGRAM " FORESAY_LOG=error XDG_STATE_HOME=" + home +
                            " XDG_CONFIG_HOME=" + home + "/none XDG_CONFIG_DIRS=" + home + "/none; exec 2>&1; " +
                            script;
    const std::string path = write_scratch("script.sh", all);
    std::string out;
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(("bash " + path).c_str(), "r"), ::pclose);
    std::array<char, 4096> chunk{};
    while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe.get())) out.append(chunk.data(), got);
    return out;
}

// What the program shows on a terminal of its own, as the terminal gets it: "\r\n" for a newline.
std::string on_terminal(const std::vector<std::string>& arguments) {
    int terminal = -1;
    const pid_t child = ::forkpty(&terminal, nullptr, nullptr, nullptr);
    if (child == 0) {
        ::setenv("FORESAY_LOG", "error", 1);
        ::setenv("XDG_STATE_HOME", scratch().c_str(), 1);
        ::setenv("XDG_CONFIG_HOME", (scratch() / "none").c_str(), 1);
        std::vector<char*> words = {const_cast<char*>("foresay")};
        for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
        words.push_back(nullptr);
        ::execv(FORESAY_PROGRAM, words.data());
        ::_exit(127);
    }
    std::string shown;
    std::array<char, 4096> chunk{};
    for (;;) {
        const ssize_t got = ::read(terminal, chunk.data(), chunk.size());
        if (got <= 0) break;  // EIO: the program has ended
        shown.append(chunk.data(), static_cast<std::size_t>(got));
    }
    ::close(terminal);
    ::waitpid(child, nullptr, 0);
    return shown;
}

// ---- what is completed

TEST(Prompt, AConfigurationThatIsAPromptIsAnsweredWithTheOption) {
    const Outcome outcome = run({"complete", "def f(x):"});
    EXPECT_EQ(outcome.status, 2);
    EXPECT_EQ(outcome.error, "foresay: there is no configuration file 'def f(x):'; a prompt is written with -p TEXT\n");
    EXPECT_EQ(run({"tokenize", "def f(x):"}, "x").error,
              "foresay: there is no configuration file 'def f(x):'; a text comes from -f FILE or standard input\n");
    // With a prompt, it was meant as a file.
    EXPECT_THAT(run({"complete", "none.toml", "-p", "x"}).error,
                StartsWith("foresay: none.toml: cannot read the configuration"));
}

TEST(Prompt, ComesFromStandardInputByDashOrByDefault) {
    const std::string prompt = "def fib(n):\n";
    const std::string text = run({"complete", "-p", prompt, "-n", "8"}).out;
    EXPECT_EQ(run({"complete", "-f", "-", "-n", "8"}, prompt).out, text);
    EXPECT_EQ(run({"complete", "-n", "8"}, prompt).out, text);
    EXPECT_EQ(run({"complete", "-f", "/dev/stdin", "-n", "8"}, prompt).out, text);
    EXPECT_EQ(run({"complete", "-f", write_scratch("prompt.py", prompt), "-n", "8"}).out, text);
    EXPECT_EQ(shell("$F complete -n 8 -f <(printf 'def fib(n):\\n')"), text);
    for (const std::string command : {"complete", "tokenize", "perplexity"}) {
        EXPECT_THAT(run({command, "--help"}).out, ContainsRegex("-f FILE +read the .* from FILE; - is standard"));
    }
    EXPECT_EQ(run({"tokenize", "-f", "-"}, prompt).out, run({"tokenize", "--model", target()}, prompt).out);
}

TEST(Prompt, AnEmptyOneIsRefused) {
    const Outcome option = run({"complete", "-p", ""});
    EXPECT_EQ(option.status, 2);
    EXPECT_EQ(option.error, "foresay: -p: the prompt is empty, so there is nothing to complete\n");
    for (const auto& call : std::vector<std::vector<std::string>>{
             {"complete"}, {"complete", "-f", "-"}, {"complete", "-f", write_scratch("empty", "")}}) {
        const Outcome outcome = run(call);
        EXPECT_EQ(outcome.status, 1);
        EXPECT_EQ(outcome.out, "");
        EXPECT_EQ(outcome.error, "foresay: the prompt is empty, so there is nothing to complete\n");
    }
}

TEST(Prompt, TwoOfThemAreRefused) {
    for (const auto& [arguments, sentence] : std::vector<std::pair<std::vector<std::string>, std::string>>{
             {{"complete", "-p", "x", "-p", "y"}, "foresay: -p is given 2 times; give it once\n"},
             {{"complete", "-f", "x", "-f", "y"}, "foresay: -f is given 2 times; give it once\n"},
             {{"tokenize", "-f", "x", "-f", "y"}, "foresay: -f is given 2 times; give it once\n"}}) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.status, 2);
        EXPECT_EQ(outcome.error, sentence);
    }
    EXPECT_EQ(
        json::parse(run({"complete", "-p", "x", "--seed", "1", "--seed", "2", "-n", "1", "--json"}).out).at("seed"), 2)
        << "the last value of any other option counts";
}

TEST(Prompt, FarTooLongOnesAreRefusedWithBothNumbers) {
    for (const char c : {' ', 'a'}) {
        const std::string file = write_scratch("long.txt", std::string(60'000'000, c));
        const Outcome outcome = run({"complete", "-f", file});
        EXPECT_EQ(outcome.status, 1);
        EXPECT_TRUE(std::regex_match(
            outcome.error, std::regex("foresay: the prompt has at least [0-9]+ tokens, but the context has 2048 "
                                      "positions; shorten it, or set a longer --context if the model allows one\n")))
            << outcome.error;
        // One entry of a conversation, and a file that is attached to one.
        const Outcome entry = run({"chat", "-n", "1"}, std::string(8'000'000, c) + "x\n");
        EXPECT_THAT(entry.error, AllOf(HasSubstr("at least "), HasSubstr("the context has 2048 positions")));
        const std::string smaller = write_scratch("smaller.txt", std::string(4'000'000, c));
        EXPECT_THAT(run({"chat", "--lines", "-n", "1"}, "/file " + smaller + "\n").error,
                    AllOf(HasSubstr("has at least "), HasSubstr("tokens, and the context has room for 2048")));
    }
}

TEST(Prompt, WhatNeedsNoModelIsCheckedBeforeOneIsLookedFor) {
    const std::string none = (scratch() / "none.txt").string();
    for (const auto& [option, value, problem] : std::vector<std::array<std::string, 3>>{
             {"--stop", "", "a stop string is empty"}, {"--prediction", none, none}}) {
        const Outcome outcome = run({"complete", "-p", "x", "--model", "nonesuch.gguf", option, value});
        EXPECT_EQ(outcome.status, 1) << option;
        EXPECT_THAT(outcome.error, AllOf(HasSubstr(problem), Not(HasSubstr("nonesuch")))) << option;
    }
}

TEST(Prompt, TheAnswerAtATerminalEndsItsLine) {
    EXPECT_THAT(on_terminal({"complete", "-p", "def f(x):", "-n", "4"}), EndsWith("\n"));
    // No second one after a text that ends with one.
    const std::string stopped =
        on_terminal({"complete", "-p", "def f(x):", "-n", "1", "--set", "sampling.chain=[\"logit_bias\"]", "--set",
                     "sampling.logit_bias.tokens=" +
                         [] {
                             const std::string ids = run({"tokenize", "--no-special", "--json"}, "\n").out;
                             return json::parse(ids).at("token_ids").dump();
                         }(),
                     "--set", "sampling.logit_bias.values=[100]"});
    // A slow machine shows the progress of loading first, each time from the beginning of the line.
    const std::size_t cleared = stopped.rfind("\x1b[K");
    EXPECT_EQ(cleared == std::string::npos ? stopped : stopped.substr(cleared + 3), "\r\n");
    EXPECT_THAT(run({"complete", "-p", "def f(x):", "-n", "4"}).out, Not(EndsWith("\n")))
        << "to a pipe, the text alone";
}

// ---- what would block

TEST(Files, PipesAndDevicesAreRefusedAtOnce) {
    const std::string fifo = (scratch() / "fifo").string();
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    const std::string config = write_scratch("pipe.toml", "[target]\nmodel = \"" + fifo + "\"\n");
    const std::string extending = write_scratch("extends.toml", "extends = \"fifo\"\n");
    for (const auto& call : std::vector<std::vector<std::string>>{{"config", "check", fifo},
                                                                  {"config", "show", fifo},
                                                                  {"config", "check", config},
                                                                  {"config", "check", extending},
                                                                  {"complete", fifo, "-p", "x"},
                                                                  {"complete", "-f", fifo},
                                                                  {"complete", "-f", "/dev/zero"},
                                                                  {"complete", "--model", fifo, "-p", "x"},
                                                                  {"complete", "--draft", fifo, "-p", "x"},
                                                                  {"tokenize", "-f", fifo},
                                                                  {"tokenize", "--model", fifo},
                                                                  {"perplexity", "-f", fifo},
                                                                  {"inspect", fifo},
                                                                  {"inspect", "--verify", fifo},
                                                                  {"logits", "--model", target(), "--tokens", fifo},
                                                                  {"bench", "speculation", "--prompts", fifo}}) {
        const Outcome outcome = run(call, "x");
        EXPECT_EQ(outcome.status, 1) << ::testing::PrintToString(call);
        EXPECT_EQ(outcome.out, "");
        EXPECT_THAT(outcome.error, AllOf(StartsWith("foresay: "), ContainsRegex("not a (regular )?file")))
            << ::testing::PrintToString(call);
    }
    EXPECT_THAT(run({"chat", "--lines"}, "/file " + fifo + "\n").error, HasSubstr("is not a regular file"));
    // A configuration may come from the shell, too.
    EXPECT_THAT(shell("$F config show <(printf '[sampling]\\nseed = 77\\n') | grep seed"), HasSubstr("seed = 77"));
}

// ---- colours

TEST(Colours, FollowTheOptionThenTheEnvironment) {
    const std::string note = "\x1b[2m";  // a dimmed note of a conversation
    const auto error = [](std::vector<std::string> options,
                          std::vector<std::pair<std::string, std::string>> variables) {
        std::vector<std::string> arguments = {"chat", "--lines", "-n", "1"};
        arguments.insert(arguments.end(), options.begin(), options.end());
        variables.emplace_back("TERM", "xterm");
        return run_with(arguments, variables, "/sampler\n").error;
    };
    EXPECT_THAT(error({}, {}), Not(HasSubstr(note))) << "no terminal";
    EXPECT_THAT(error({"--color", "always"}, {}), HasSubstr(note));
    EXPECT_THAT(error({"--color=always"}, {{"NO_COLOR", "1"}}), HasSubstr(note)) << "the option wins";
    EXPECT_THAT(error({}, {{"CLICOLOR_FORCE", "1"}}), HasSubstr(note));
    EXPECT_THAT(error({}, {{"CLICOLOR_FORCE", "0"}}), Not(HasSubstr(note)));
    EXPECT_THAT(error({}, {{"CLICOLOR_FORCE", "1"}, {"NO_COLOR", "1"}}), Not(HasSubstr(note)));
    EXPECT_THAT(error({"--no-color"}, {{"CLICOLOR_FORCE", "1"}}), Not(HasSubstr(note)));
    EXPECT_THAT(error({"--color", "never"}, {{"CLICOLOR_FORCE", "1"}}), Not(HasSubstr(note)));
    EXPECT_THAT(error({"--color", "auto"}, {}), Not(HasSubstr(note)));
    EXPECT_EQ(run({"chat", "--color", "sometimes"}).error,
              "foresay: --color must be auto, always or never, not 'sometimes'\n");
    // Also before the command, as an alias would have it.
    EXPECT_EQ(run({"--color", "never", "tokenize"}, "x").status, 0);
    EXPECT_EQ(run({"--no-color", "config", "show"}).status, 0);
    for (const std::string command : {"chat", "complete", "session list", "plugin list", "completion"}) {
        std::vector<std::string> call;
        std::istringstream words(command);
        for (std::string word; words >> word;) call.push_back(word);
        call.emplace_back("--help");
        EXPECT_THAT(run(call).out, AllOf(HasSubstr("--color WHEN"), HasSubstr("--no-color"))) << command;
    }
    EXPECT_THAT(run({"--help"}).out, HasSubstr("--color WHEN"));
    EXPECT_THAT(run({"completion", "bash"}).out, HasSubstr("_foresay_words 'auto always never'"));
}

// ---- help and mistakes

TEST(Help, IsACommandToo) {
    EXPECT_EQ(run({"help"}).out, run({"--help"}).out);
    EXPECT_EQ(run({"help", "complete"}).out, run({"complete", "--help"}).out);
    EXPECT_EQ(run({"help", "config"}).out, run({"config", "--help"}).out);
    EXPECT_EQ(run({"help", "config", "check"}).out, run({"config", "check", "--help"}).out);
    EXPECT_EQ(run({"help", "help"}).status, 0);
    EXPECT_THAT(run({"--help"}).out, HasSubstr("\n  help "));
    const Outcome unknown = run({"help", "caht"});
    EXPECT_EQ(unknown.status, 2);
    EXPECT_EQ(unknown.error, "foresay: unknown command 'caht'; did you mean 'chat'? (see foresay --help)\n");
    EXPECT_EQ(run({"help", "chat", "more"}).status, 2);
}

TEST(Help, NamesValuesForPeople) {
    for (const std::string command : {"bench", "chat", "complete", "logits", "perplexity", "inspect", "tokenize"}) {
        const std::string help = run({command, "--help"}).out;
        for (const char* strange : {"INT", "TEXT:", "ARGS", "UINT", "FLOAT", " in [", "(1x)", "Excludes", "REQUIRED"}) {
            EXPECT_THAT(help, Not(HasSubstr(strange))) << command;
        }
    }
}

TEST(Mistakes, HaveOneVoice) {
    const std::vector<std::pair<std::vector<std::string>, std::string>> slips = {
        {{"chat", "-v"}, "foresay: unknown option '-v' for chat (see foresay chat --help)"},
        {{"-v"}, "foresay: unknown option '-v' (see foresay --help)"},
        {{"chat", "--no-colour"},
         "foresay: unknown option '--no-colour' for chat; did you mean '--no-color'? (see "
         "foresay chat --help)"},
        {{"complete", "-p", "x", "-q"}, "foresay: unknown option '-q' for complete (see foresay complete --help)"},
        {{"complete", "-p", "--x", "--y"}, "foresay: unknown option '--y' for complete (see foresay complete --help)"},
        {{"complete", "--json=5", "-p", "x"}, "foresay: --json takes no value (see foresay complete --help)"},
        {{"complete", "--json=false", "-p", "x"}, "foresay: --json takes no value (see foresay complete --help)"},
        {{"complete", "--seed"}, "foresay: --seed needs a value (see foresay complete --help)"},
        {{"complete", "--set"}, "foresay: --set needs a value (see foresay complete --help)"},
        {{"complete", "-p"}, "foresay: -p needs a value (see foresay complete --help)"},
        {{"inspect"}, "foresay: PATH is required (see foresay inspect --help)"},
        {{"bench"}, "foresay: BENCHMARK is required (see foresay bench --help)"},
        {{"logits"}, "foresay: --tokens is required (see foresay logits --help)"},
        {{"completion", "bash", "zsh"}, "foresay: unexpected argument 'zsh' (see foresay completion --help)"},
        {{"bench", "a", "b", "c"}, "foresay: too many arguments: there is one BENCHMARK (see foresay bench --help)"},
        {{"config", "nothing"},
         "foresay: unknown command 'config nothing'; known are check, import, reference, schema, show "
         "(see foresay config --help)"},
        {{"complete", "-p", "x", "--seed", "99999999999999999999"},
         "foresay: --seed: must be an integer of at most 9223372036854775807, not '99999999999999999999' (see foresay "
         "complete --help)"},
        {{"complete", "-p", "x", "--context", "99999999999999999999"},
         "foresay: --context: must be an integer of at most 9223372036854775807, not '99999999999999999999' (see "
         "foresay complete --help)"},
        {{"complete", "-p", "x", "--seed", "-99999999999999999999"},
         "foresay: --seed: must be an integer of at least 0, not '-99999999999999999999' (see foresay complete "
         "--help)"},
    };
    for (const auto& [arguments, sentence] : slips) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.status, 2) << sentence;
        EXPECT_EQ(outcome.error, sentence + "\n");
    }
    // Mistakes in a configuration begin in the same way.
    const std::string file = write_scratch("mistakes.toml", "[sampling]\nsed = 1\ncain = []\n");
    EXPECT_THAT(run({"complete", file, "-p", "x"}).error,
                AllOf(StartsWith("foresay: " + file + ":2:1: unknown key 'sed'"),
                      HasSubstr("\nforesay: " + file + ":3:1: unknown key 'cain'")));
}

// ---- configurations

TEST(Configurations, AFileWithoutAModelRunsTheBundledPair) {
    const std::string file = write_scratch("cold.toml", "[sampling.temperature]\nvalue = 0.0\n");
    const Outcome outcome = run({"complete", file, "-p", "def fib(n):", "-n", "8"});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.out, run({"complete", "-p", "def fib(n):", "-n", "8", "--temperature", "0"}).out);
    EXPECT_EQ(run({"config", "check", file}).status, 0);
    EXPECT_THAT(run({"config", "show", file}).out, HasSubstr("python-coder"));
    // One that says that there is none is refused by its own name, whatever the user's file says.
    write_scratch("config/foresay/config.toml", "[sampling]\nseed = 5\n");
    const std::string none = write_scratch("none-at-all.toml", "[target]\nmodel = \"\"\n");
    EXPECT_THAT(run({"complete", none, "-p", "x"}).error,
                StartsWith("foresay: " + none + ":2:9: no target model; set 'model' in [target]"));
    fs::remove_all(scratch() / "config");
}

TEST(Configurations, AChainNeedNotNameAPlugin) {
    const std::vector<std::string> chain = {"--set", "sampling.chain=[\"min_p\",\"temperature\"]"};
    for (const std::string command : {"complete", "config"}) {
        std::vector<std::string> call = {command};
        if (command == "complete") call.insert(call.end(), {"-p", "x = ", "-n", "4"});
        if (command == "config") call.push_back("show");
        call.insert(call.end(), chain.begin(), chain.end());
        const Outcome outcome = run(call);
        EXPECT_EQ(outcome.status, 0) << outcome.error;
        EXPECT_EQ(outcome.error, "");
    }
    // A file that loads a plugin and does not use it gets a warning.
    const std::string file = write_scratch("unused.toml", "[[plugin]]\nname = \"no-such-plugin\"\n");
    const Outcome outcome = run_with({"complete", file, "-p", "x = ", "-n", "4"}, {{"FORESAY_LOG", "warn"}});
    EXPECT_EQ(outcome.status, 1) << "the bundled chain names wordlist, which this file's [[plugin]] replaces";
    const Outcome warned =
        run_with({"complete", file, "-p", "x = ", "-n", "4", "--model", target()}, {{"FORESAY_LOG", "warn"}});
    EXPECT_EQ(warned.status, 0) << warned.error;
    EXPECT_THAT(warned.error,
                HasSubstr("unused.toml:1:1: the plugin does nothing, because sampling.chain does not name "
                          "'no-such-plugin'; add it there or remove its [[plugin]]"));
}

// ---- models

TEST(Inspect, SaysWhetherItRunsAndItsStatusSaysItToo) {
    const std::string bare = source("tests/golden/tiny/llama2");  // without a tokenizer
    const Outcome complete = run({"complete", "--model", bare, "-p", "x"});
    const Outcome outcome = run({"inspect", bare});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.out, HasSubstr("cannot run here"));
    const std::string sentence = complete.error.substr(9, complete.error.size() - 10);  // without "foresay: "
    EXPECT_THAT(outcome.out, HasSubstr(sentence)) << complete.error;
    EXPECT_EQ(run({"inspect", FORESAY_UNPACKED_GOLDENS "/vocab/ggml-vocab-gpt-2.gguf"}).status, 1)
        << "only a vocabulary";
    const Outcome both = run({"inspect", target(), target(), bare});
    EXPECT_EQ(both.status, 1);
    EXPECT_THAT(both.out, AllOf(HasSubstr("would run on"), HasSubstr("cannot run here")));
    EXPECT_EQ(run({"inspect", target()}).status, 0);
}

// A copy of the bundled pair with its lists.
class Pair : public ::testing::Test {
protected:
    Pair() : folder_(scratch() / "pair") {
        fs::remove_all(folder_);
        fs::copy(source("models/python-coder"), folder_);
    }
    void flip(const std::string& name, std::size_t byte, int bit) const {
        std::fstream file(folder_ / name, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(static_cast<std::streamoff>(byte));
        const char old = static_cast<char>(file.get());
        file.seekp(static_cast<std::streamoff>(byte));
        file.put(static_cast<char>(old ^ (1 << bit)));
    }
    std::string path(const std::string& name) const { return (folder_ / name).string(); }

    fs::path folder_;
};

TEST_F(Pair, IsVerified) {
    const Outcome fine = run({"inspect", "--verify", path("target-q4_k_m.gguf"), path("draft-q8_0.gguf")});
    EXPECT_EQ(fine.status, 0) << fine.error;
    EXPECT_EQ(fine.out, path("target-q4_k_m.gguf") + ": ok (SHA256SUMS, XXH128SUMS)\n" + path("draft-q8_0.gguf") +
                            ": ok (SHA256SUMS, XXH128SUMS)\n");
    flip("draft-q8_0.gguf", 5'000'000, 3);
    const Outcome bad = run({"inspect", "--verify", path("target-q4_k_m.gguf"), path("draft-q8_0.gguf")});
    EXPECT_EQ(bad.status, 1);
    EXPECT_THAT(bad.out, HasSubstr("draft-q8_0.gguf: DIFFERS from SHA256SUMS, XXH128SUMS; its SHA-256 is "));
    EXPECT_EQ(bad.error, "foresay: 1 of 2 files differs from the checksum that is known; get the model again\n");
    // Without a checksum, the program says what to compare.
    fs::remove(folder_ / "SHA256SUMS");
    fs::remove(folder_ / "XXH128SUMS");
    const Outcome unknown = run({"inspect", "--verify", path("target-q4_k_m.gguf")});
    EXPECT_EQ(unknown.status, 1);
    const std::string listed = read(source("models/python-coder/SHA256SUMS"));
    const std::string digest = listed.substr(listed.find("target") - 66, 64);
    EXPECT_EQ(unknown.out, path("target-q4_k_m.gguf") + ": no checksum is known; its SHA-256 is " + digest + "\n");
    // Names and metadata that the Hub and its client leave.
    fs::create_directories(folder_ / "blobs");
    fs::rename(folder_ / "target-q4_k_m.gguf", folder_ / "blobs" / digest);
    fs::create_symlink("blobs/" + digest, folder_ / "hub.gguf");
    EXPECT_EQ(run({"inspect", "--verify", path("hub.gguf")}).out, path("hub.gguf") + ": ok (the name of its blob)\n");
    write_scratch("pair/.cache/huggingface/download/draft-q8_0.gguf.metadata", "0123\n" + digest + "\n1.5\n");
    EXPECT_THAT(run({"inspect", "--verify", path("draft-q8_0.gguf")}).out,
                HasSubstr("DIFFERS from the Hub's metadata"));
}

TEST_F(Pair, IsNotLoadedWhenABitHasChanged) {
    const std::vector<std::string> call = {
        "complete", "--model", path("target-q4_k_m.gguf"), "--draft", path("draft-q8_0.gguf"), "-p", "x = ", "-n", "4"};
    EXPECT_EQ(run(call).status, 0);
    // Weights of both models, near the begin, in the middle and at the end.
    const auto target_size = fs::file_size(path("target-q4_k_m.gguf")),
               draft_size = fs::file_size(path("draft-q8_0.gguf"));
    const std::vector<std::pair<std::string, std::size_t>> places = {{"target-q4_k_m.gguf", 600'000},
                                                                     {"target-q4_k_m.gguf", target_size / 2},
                                                                     {"target-q4_k_m.gguf", target_size - 1},
                                                                     {"draft-q8_0.gguf", draft_size / 2},
                                                                     {"draft-q8_0.gguf", draft_size - 1}};
    for (const auto& [name, byte] : places) {
        flip(name, byte, 2);
        const Outcome outcome = run(call);
        EXPECT_EQ(outcome.status, 1) << name << " " << byte;
        EXPECT_EQ(outcome.out, "");
        EXPECT_THAT(outcome.error, AllOf(StartsWith("foresay: --"),
                                         HasSubstr(path(name) + ": damaged or changed, because its checksum is"),
                                         HasSubstr("git checkout"), HasSubstr("--set runtime.check_files=false")));
        flip(name, byte, 2);
    }
    EXPECT_EQ(run(call).status, 0);
    flip("target-q4_k_m.gguf", target_size - 1, 2);
    std::vector<std::string> all_the_same = call;
    all_the_same.insert(all_the_same.end(), {"--set", "runtime.check_files=false"});
    EXPECT_EQ(run(all_the_same).status, 0);
    // Commands that load no weights do not read them.
    EXPECT_EQ(run({"tokenize", "--model", path("target-q4_k_m.gguf")}, "x").status, 0);
}

// Said before a model is looked for: what listens to other machines has keys, or was told that it needs none.
TEST(Serve, OtherMachinesReachItOnlyWithKeysOrByIntent) {
    const std::vector<std::vector<std::string>> foreign = {
        {"--listen", "0.0.0.0:0"}, {"--listen", "[::]:0"}, {"--listen", "127.0.0.1:0", "--listen", "10.1.2.3:8080"}};
    for (const std::vector<std::string>& addresses : foreign) {
        std::vector<std::string> call = {"serve", "--model", "nonesuch.gguf"};
        call.insert(call.end(), addresses.begin(), addresses.end());
        for (const bool dry : {false, true}) {
            if (dry) call.emplace_back("--dry-run");
            const Outcome outcome = run(call);
            EXPECT_EQ(outcome.status, 1) << addresses.back();
            EXPECT_EQ(outcome.out, "");
            EXPECT_THAT(outcome.error, AllOf(HasSubstr("other machines reach " + addresses.back()),
                                             HasSubstr("give --keys FILE"), Not(HasSubstr("nonesuch"))));
        }
    }
    const auto first_lines = [](std::vector<std::string> more) {
        more.insert(more.begin(), {"serve", "--dry-run"});
        const Outcome outcome = run(more);
        EXPECT_EQ(outcome.status, 0) << outcome.error;
        return outcome.error.substr(0, outcome.error.find("context "));
    };
    EXPECT_EQ(first_lines({}),
              "listening on http://127.0.0.1:8080, for this machine\n"
              "listening on http://[::1]:8080, for this machine\n");
    EXPECT_EQ(first_lines({"--port", "5"}),
              "listening on http://127.0.0.1:5, for this machine\n"
              "listening on http://[::1]:5, for this machine\n");
    EXPECT_EQ(first_lines({"--listen", "0.0.0.0:80", "--no-keys"}), "listening on http://0.0.0.0:80, for anyone\n");
    const std::string made = run({"serve", "--new-key", "ann"}).out;
    const std::string keys = write_scratch("keys", made.substr(made.find("sha256:")));
    EXPECT_EQ(first_lines({"--listen", "[::]:80", "--keys", keys}), "listening on http://[::]:80, with keys\n");
    EXPECT_EQ(run({"serve", "--dry-run", "--keys", keys, "--no-keys"}).status, 2);
    EXPECT_EQ(run({"serve", "--dry-run", "--port", "70000"}).status, 2);
    EXPECT_EQ(run({"serve", "--dry-run", "--port", "1", "--listen", "127.0.0.1:1"}).status, 2);
}

// Others would allow nothing, and clients would be refused as without them.
TEST(Serve, HostsAndOriginsOfAServerAreThoseThatRequestsHave) {
    const auto refused = [](const std::string& option, const std::string& value) {
        const Outcome outcome = run({"serve", "--model", "nonesuch.gguf", option, value});
        EXPECT_EQ(outcome.out, "");
        if (outcome.status == 2) {
            EXPECT_THAT(outcome.error, HasSubstr(option + " '" + value + "'; give")) << value;
        }
        return outcome.status == 2;
    };
    for (const char* host : {"", "http://box", "box:8080", "::1", "a b", "*"})
        EXPECT_TRUE(refused("--host", host)) << host;
    for (const char* host : {"box", "Box.example", "10.0.0.1", "[::1]"}) EXPECT_FALSE(refused("--host", host)) << host;
    for (const char* origin : {"", "x", "*", "page.example", "http://", "://x", "http://page.example/"})
        EXPECT_TRUE(refused("--origin", origin)) << origin;
    for (const char* origin : {"http://page.example", "https://localhost:3000", "app://obsidian.md", "null", "file://"})
        EXPECT_FALSE(refused("--origin", origin)) << origin;
}

}  // namespace
}  // namespace foresay::testing
