// Conversations through a pipe: saved sessions, branches, context, engine commands.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/weights/gguf.h"
#include "tests/app/program.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

Outcome chat(const std::string& input, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"chat", "-n", "10"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, input);
}

std::string complete(const std::string& prompt, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"complete", "-p", prompt, "-n", "10"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments).out;
}

fs::path session_file(const std::string& name) { return scratch() / "foresay" / "sessions" / (name + ".session"); }

// A conversation in one go, and the same with the program left and started again behind every line.
TEST(Sessions, GoingOnHasTheSameBytes) {
    const std::vector<std::string> lines = {"def fib(n):", "/retry",    "/set sampling.temperature.value 0.9",
                                            "    x = 1",   "/retry 7",  "/undo",
                                            "/n 3",        "/branch 0", "/edit \"    return 1\n\"",
                                            "/undo",       "print(1)"};
    std::string all, apart;
    for (const std::string& line : lines) all += line + "\n";
    const Outcome whole = chat(all, {"--session", "whole", "--seed", "4"});
    EXPECT_EQ(whole.status, 0) << whole.error;
    for (const std::string& line : lines) {
        const Outcome one = chat(line + "\n", {"--session", "apart", "--seed", "4"});
        EXPECT_EQ(one.status, 0) << line << one.error;
        apart += one.out;
    }
    EXPECT_EQ(apart, whole.out);
    EXPECT_EQ(run({"session", "show", "apart"}).out, run({"session", "show", "whole"}).out);
    for (const char* name : {"whole", "apart"}) {
        const Outcome replayed = run({"session", "replay", name});
        EXPECT_EQ(replayed.status, 0) << replayed.error;
        EXPECT_THAT(replayed.out, AllOf(HasSubstr(" the same, 0 different, 0 skipped"), Not(HasSubstr("differs"))));
    }
    // The text does not depend on speculation, so neither does the replay.
    EXPECT_EQ(run({"session", "replay", "whole", "--set", "speculation.mode=off"}).status, 0);
}

TEST(Sessions, ContinueTakesTheLastOneWithItsSettings) {
    chat("import os\n", {"--session", "older"});
    chat("def f(x):\n", {"--session", "newer", "--seed", "5", "--set", "sampling.top_k.k=7"});
    const Outcome shown = run({"chat", "--continue"}, "/show sampling.top_k.k\n/stats\n");
    EXPECT_THAT(shown.error, AllOf(HasSubstr("sampling.top_k.k = 7"), HasSubstr("session newer"), HasSubstr("seed 5")));
    // A flag wins over what was saved.
    EXPECT_THAT(run({"chat", "-c", "--set", "sampling.top_k.k=9"}, "/show sampling.top_k.k\n").error,
                HasSubstr("sampling.top_k.k = 9"));
    EXPECT_THAT(run({"session", "list"}).out, AllOf(HasSubstr("newer"), HasSubstr("def f(x):"), HasSubstr("1 turn")));
}

TEST(Sessions, AreDeletedByName) {
    chat("import os\n", {"--session", "gone-1"});
    chat("import os\n", {"--session", "gone-2"});
    const Outcome outcome = run({"session", "delete", "gone-1", "gone-2"});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.out, "deleted gone-1\ndeleted gone-2\n");
    EXPECT_THAT(run({"session", "list"}).out, Not(HasSubstr("gone-")));
    const Outcome again = run({"session", "delete", "gone-1"});
    EXPECT_EQ(again.status, 1);
    EXPECT_THAT(again.error, HasSubstr("there is no saved session gone-1"));
}

TEST(Sessions, WhatIsPipedIsNotSavedUnasked) {
    const auto count = [] {
        std::error_code ignored;
        const fs::path folder = session_file("x").parent_path();
        return fs::exists(folder) ? std::distance(fs::directory_iterator(folder, ignored), {}) : 0;
    };
    const auto before = count();
    chat("import os\n");
    EXPECT_EQ(count(), before);
    chat("/stats\n", {"--session", "empty"});
    EXPECT_FALSE(fs::exists(session_file("empty"))) << "nothing was said";
}

TEST(Sessions, AnotherModelIsRefusedWithASentence) {
    chat("import os\n", {"--session", "first-model"});
    const Outcome other =
        chat("x\n", {"--session", "first-model", "--model", source("models/python-coder/draft-q8_0.gguf")});
    EXPECT_EQ(other.status, 1);
    EXPECT_THAT(other.error,
                AllOf(HasSubstr("was drawn by "), HasSubstr("target-q4_k_m.gguf"), HasSubstr("another model")));
    EXPECT_EQ(other.out, "");
}

TEST(Sessions, MistakesAreAnswered) {
    EXPECT_THAT(run({"session", "replay", "no-such"}).error, HasSubstr("there is no saved session no-such"));
    EXPECT_THAT(chat("x\n", {"--session", "a b"}).error, HasSubstr("a session's name has"));
    EXPECT_EQ(run({"chat", "--session", "x", "--continue"}, "").status, 2);
    const std::string bad = write_scratch("bad.session", "hello\n");
    const Outcome outcome = chat("x\n", {"--session", bad});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, HasSubstr("bad.session:1: not a saved session of foresay"));
}

// What changed in the file by one bit of an answer is not what the model draws.
TEST(Sessions, ReplayNoticesAnotherAnswer) {
    chat("def fib(n):\n", {"--session", "honest", "--seed", "3"});
    const Outcome other = run({"session", "replay", "honest", "--set", "target.context=512"});
    EXPECT_EQ(other.status, 0) << other.error;
    // A forged session: the settings say another temperature than the answer was drawn with.
    chat("def fib(n):\n/set sampling.temperature.value 1.5\n/set sampling.seed 9\nx = \n", {"--session", "two"});
    std::ifstream stream(session_file("two"), std::ios::binary);
    std::vector<std::string> lines;
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    std::string forged;
    bool first = true;
    for (const std::string& line : lines) {
        const bool settings = line.find("{\"settings\"") == 9;
        if (settings && first) {
            first = false;
            continue;  // the first turn is left with no settings but those of the program
        }
        forged += line + "\n";
    }
    const std::string path = write_scratch("forged.session", forged);
    const Outcome outcome = run({"session", "replay", path, "--set", "sampling.temperature.value=3"});
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_THAT(outcome.out, HasSubstr("turn 0: differs from token"));
    EXPECT_THAT(outcome.error, HasSubstr("could not be reproduced"));
}

TEST(Talk, SeveralAnswersAreTheBranchesOfComplete) {
    const Outcome outcome = chat("/n 3 def fib(n):\n/n 2\n", {"--seed", "6"});
    std::string expected;
    for (int branch = 0; branch < 5; ++branch) {
        expected += complete("def fib(n):", {"--seed", "6", "--branch", std::to_string(branch)}) + "\n";
    }
    EXPECT_EQ(outcome.out, expected);
    EXPECT_THAT(outcome.error, HasSubstr("seed 6, branch 4"));
}

TEST(Talk, SavesAndLoads) {
    const Outcome outcome = chat("def f(x):\n/save kept\n/clear\nimport os\n/load kept\n/retry\n/load\n");
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.out, complete("def f(x):") + "\n" + complete("import os") + "\n" +
                               complete("def f(x):", {"--branch", "1"}) + "\n");
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("kept.session"), HasSubstr("Continuing kept: 1 answer")));
    EXPECT_EQ(run({"session", "replay", "kept"}).status, 0);
}

TEST(Talk, FilesAreContextWithACount) {
    const std::string file = write_scratch("numbers.py", "one = 1\ntwo = 2\n");
    const Outcome outcome = chat("/file " + file + "\nthree =\n");
    EXPECT_EQ(outcome.out, complete("# " + file + "\none = 1\ntwo = 2\n\nthree =") + "\n");
    EXPECT_THAT(outcome.error, HasSubstr(" tokens"));
    fs::create_directories(scratch() / "tree" / ".hidden");
    write_scratch("tree/a.py", "a = 1\n");
    write_scratch("tree/b.txt", "b\n");
    write_scratch("tree/.hidden/c.py", "c = 1\n");
    write_scratch("tree/d.py", std::string("d\0e", 3));
    const Outcome folder = chat("/dir " + (scratch() / "tree").string() + " .py\n/file\n");
    EXPECT_THAT(folder.error, AllOf(HasSubstr("tree/a.py"), Not(HasSubstr("b.txt")), Not(HasSubstr("c.py")),
                                    HasSubstr("1 skipped"), HasSubstr("1 file, ")));
}

TEST(Talk, FilesThatAreNoneOrTooLargeAreRefused) {
    const std::string huge = write_scratch("huge.txt", std::string(5 << 20, 'x'));
    std::string text;
    for (int i = 0; i < 3000; ++i) text += "word" + std::to_string(i) + "\n";
    const std::string longer = write_scratch("longer.txt", text);
    const std::string binary = write_scratch("binary.txt", std::string("a\0b", 3));
    const std::string latin = write_scratch("latin.txt", "caf\xe9\n");
    const Outcome outcome = chat("/file " + huge + "\n/file " + longer + "\n/file " + binary + "\n/file " + latin +
                                 "\n/file /\n/file /no/such\n/dir " + latin + "\n");
    EXPECT_EQ(outcome.status, 1) << "every line failed";
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("larger than 4 MiB"), HasSubstr("the context has room for"),
                                     HasSubstr("binary.txt is not text"), HasSubstr("latin.txt is not text"),
                                     HasSubstr("is a folder; /dir"), HasSubstr("there is no file /no/such"),
                                     HasSubstr("is not a folder; /file")));
}

TEST(Talk, FillsInTheMiddle) {
    const std::string file = write_scratch("hole.py", "def add(a, b):\n\n    return total");
    const Outcome place = chat("/fim " + file + ":2\n");
    EXPECT_EQ(place.status, 0) << place.error;
    EXPECT_GT(place.out.size(), 3u);
    EXPECT_EQ(chat("/fim " + file + ":2\n/fim " + file + ":2:1\n").out, place.out + place.out);
    EXPECT_EQ(chat("/fim def add(a, b):\\\n<FILL>\\\n    return total\n").out, place.out);
    EXPECT_THAT(chat("/fim " + file + ":9\n").error, HasSubstr("has no line 9, only 3"));
    EXPECT_THAT(chat("/fim " + file + "\n").error, HasSubstr("is not a place"));
    EXPECT_THAT(chat("/fim\n").error, HasSubstr("FILE:LINE"));
}

TEST(Talk, TopAndTokensLookAtTheLastAnswer) {
    const Outcome outcome =
        chat("def fib(n):\n/top 2\n/tokens\n/tokens a<b\n", {"--set", "sampling.temperature.value=0"});
    // Greedy: each token is the likeliest.
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("#1"), Not(HasSubstr("#2"))));
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("said\n0 "), HasSubstr("\nanswer\n"), HasSubstr("\"def\"")));
}

TEST(Talk, TheChainCanBeChanged) {
    const Outcome outcome = chat(
        "/sampler remove top_p\n/sampler add min_p 1 p=0.2\n/sampler move min_p 2\n/sampler top_k k=9\n/sampler\n"
        "def f(x):\n/sampler add min_q\n/sampler top_k q=1\n/sampler remove xtc\n/sampler min_p\n");
    const std::string expected = complete(
        "def f(x):", {"--set", "sampling.chain=[\"wordlist\",\"min_p\",\"penalties\",\"top_k\",\"temperature\"]",
                      "--set", "sampling.min_p.p=0.2", "--set", "sampling.top_k.k=9"});
    EXPECT_EQ(outcome.out, expected + "\n");
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("2   min_p         p = 0.2\n"), HasSubstr("did you mean 'min_p'?"),
                                     HasSubstr("unknown key 'q'"), HasSubstr("the chain has no 'xtc'")));
}

TEST(Talk, PluginsComeAndGo) {
    const Outcome outcome = chat(
        "/plugin unload wordlist\n/plugin load wordlist forbid=[\\\"return\\\"]\n/set sampling.temperature.value 0\n"
        "def fib(n):\n/plugin list\n/plugin load no_such\n");
    EXPECT_EQ(
        outcome.out,
        complete("def fib(n):", {"--temperature", "0", "--set", "plugin.wordlist.options.forbid=[\"return\"]"}) + "\n")
        << outcome.error;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("loaded  "), HasSubstr("'no_such' was not found")));
}

// The example in the header of the SDK, with the commands that docs/getting-started.md gives.
TEST(Talk, APluginOfOnesOwnIsBuiltByOneLineAndLoadedByItsFile) {
    std::ifstream header(source("samplers/sdk/sampler.hpp"));
    std::string example, line;
    while (std::getline(header, line)) {
        if (line.starts_with("//     ")) example += line.substr(2) + "\n";
        if (line.find("FORESAY_EXPORT_SAMPLERS") != std::string::npos) break;
    }
    const std::string file = write_scratch("floor.cpp", example);
    const std::string library = (scratch() / "floor.so").string();
    const std::string command = std::string(FORESAY_COMPILER) + " -std=c++17 -O2 -shared -fPIC -I " +
                                source("samplers/sdk") + " " + file + " -o " + library;
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    const Outcome outcome = chat("/plugin load " + library + " distance=3\n/plugin\n/plugin unload floor\n");
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("1   floor         distance = 3.0"),
                                     ContainsRegex("floor +loaded +" + library), HasSubstr("1   wordlist")));
}

TEST(Talk, UndoSaysWhichFileItTakesBack) {
    const std::string path = write_scratch("waiting.py", "x = 1\n");
    const Outcome outcome = chat("/file " + path + "\n/undo\n");
    EXPECT_THAT(outcome.error, HasSubstr("waiting.py is no longer attached"));
}

TEST(Talk, TheProfileOfSeveralAnswersIsThatOfDrawingThem) {
    const Outcome outcome = chat("/n 2 def f(x):\n/profile\n");
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("mlp_in"), Not(HasSubstr("nothing was computed"))));
}

TEST(Talk, TopLeavesOutWhatIsNoAlternative) {
    const Outcome outcome = chat("import os\n/top 100\n");
    EXPECT_THAT(outcome.error, AllOf(ContainsRegex("#1 "), Not(HasSubstr("\" 0.0 %"))));
}

TEST(Talk, TheDraftAndTheModelsCanBeChanged) {
    const std::string target = source("models/python-coder/target-q4_k_m.gguf");
    const std::string draft = source("models/python-coder/draft-q8_0.gguf");
    const Outcome outcome = chat("def f(x):\n/draft off\n/retry 0\n/draft 3\n/retry 0\n/draft none\n/retry 0\n/draft " +
                                 draft + "\n/draft on\n/retry 0\n/model " + draft + "\n/model " + target + " " + draft +
                                 "\n/retry 0\n/draft no.gguf\n/model no.gguf\n/retry 0\n");
    const std::string answer = complete("def f(x):") + "\n";
    std::string expected;
    for (int i = 0; i < 7; ++i) expected += answer;
    EXPECT_EQ(outcome.out, expected) << outcome.error;
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("speculation off"), HasSubstr("fixed, 3 tokens"),
                                     HasSubstr("draft model none"), HasSubstr("no file at")));
}

TEST(Talk, ASystemPromptBeginsTheNextConversation) {
    const Outcome outcome = chat("/set chat.system \"import math\\n\"\n/system\ndef f(x):\n");
    EXPECT_EQ(outcome.out, complete("import math\ndef f(x):") + "\n") << outcome.error;
}

TEST(Talk, CopyNeedsATerminal) { EXPECT_THAT(chat("x\n/copy\n").error, HasSubstr("/copy needs a terminal")); }

TEST(Talk, AFailedLineIsSeenInTheStatus) {
    EXPECT_EQ(chat("/nonsense\n").status, 1);
    EXPECT_EQ(chat("import os\n").status, 0);
}

// ------------------------------------------------------------------------------------------- what goes wrong elsewhere

// The bundled target with one number turned into NaN: a weight of its last norm, or a scale of a quantised tensor.
std::string broken_model(const std::string& name) {
    const std::string path = source("models/python-coder/target-q4_k_m.gguf");
    const core::GgufFile file = core::GgufFile::open(path);
    const core::TensorInfo* tensor = file.tensors().find(name);
    EXPECT_NE(tensor, nullptr);
    std::ifstream stream(path, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    const bool quantised = tensor->type != "F32";
    EXPECT_TRUE(!quantised || tensor->type == "Q4_K") << tensor->type;
    const std::uint32_t bad = quantised ? 0x7e007e00u : 0x7fc00000u;  // d and dmin, or the value
    std::memcpy(bytes.data() + tensor->offset, &bad, sizeof bad);
    return write_scratch("broken.gguf", bytes);
}

TEST(Defects, WeightsThatAreNoNumbersAreASentence) {
    for (const auto& [tensor, named] : {std::pair{"output_norm.weight", "the last norm"},
                                        std::pair{"blk.3.ffn_gate.weight", "the gate in layer 3"}}) {
        const std::string path = broken_model(tensor);
        const Outcome outcome = run({"complete", "--model", path, "-p", "def f(x):", "-n", "4"});
        EXPECT_EQ(outcome.status, 1);
        EXPECT_EQ(outcome.out, "");
        EXPECT_THAT(outcome.error,
                    AllOf(HasSubstr(path), HasSubstr(named), HasSubstr("hold NaN or infinities (row 0)")));
    }
}

TEST(Defects, ATableOfASamplerThatIsNotUsedIsNamed) {
    Call call;
    call.arguments = {"complete", "-p", "x", "-n", "1", "--set", "sampling.mirostat.tau=4"};
    call.environment = {{"FORESAY_LOG", "warn"}};
    const Outcome outcome = run(call);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("[sampling.mirostat] does nothing"), HasSubstr("--set #1")));
    call.arguments.resize(5);
    EXPECT_THAT(run(call).error, Not(HasSubstr("does nothing")));
    // Who names another chain than the bundled file has no use for what that file says of its own.
    call.arguments.insert(call.arguments.end(), {"--set", "sampling.chain=[\"wordlist\", \"temperature\"]"});
    EXPECT_THAT(run(call).error, Not(HasSubstr("does nothing")));
    call.arguments.insert(call.arguments.end(), {"--set", "sampling.top_k.k=3"});
    EXPECT_THAT(run(call).error, HasSubstr("[sampling.top_k] does nothing"));
}

TEST(Defects, MisspeltSourcesGetASuggestion) {
    const Outcome outcome = run({"complete", "-p", "x", "--set", "speculation.sources=[\"ngrm\"]"});
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("ngrm"), HasSubstr("did you mean 'ngram'?")));
}

}  // namespace
}  // namespace foresay::testing
