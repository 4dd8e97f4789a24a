// The program as its users and their scripts see it: exit statuses, what goes to which stream, the shape of its JSON.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/app/program.h"
#include "tests/support/goldens.h"

namespace foresay::testing {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::Pair;
using ::testing::StartsWith;

const std::string kPrompt = "def fib(n):\n    ";

std::string target() { return source("models/python-coder/target-q4_k_m.gguf"); }
std::string draft() { return source("models/python-coder/draft-q8_0.gguf"); }

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

json complete(std::vector<std::string> more) {
    std::vector<std::string> arguments = {"complete", "--json", "-n", "24"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Outcome outcome = run(arguments);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.error, "");
    return json::parse(outcome.out);
}

TEST(Usage, WrongCommandLinesExitWithTwo) {
    const std::vector<std::vector<std::string>> calls = {{},
                                                         {"compleat"},
                                                         {"complete", "--no-such-flag"},
                                                         {"complete", "-p", "x", "-f", "y"},
                                                         {"complete", "-p", "x", "--speculation", "fast"},
                                                         {"complete", "-p", "x", "--speculation", "999"},
                                                         {"complete", "-p", "x", "-n", "-1"},
                                                         {"complete", "-p", "x", "--seed", "-1"},
                                                         {"complete", "-p", "x", "--seed", "9223372036854775808"},
                                                         {"complete", "-p", "x", "--branch", "1e3"},
                                                         {"complete", "-p", "x", "--quant", "q8_0"},
                                                         {"complete", "-p", "x", "--set", "novalue"},
                                                         {"perplexity", "-f", source("README.md"), "--context", "3"},
                                                         {"bench", "everything"},
                                                         {"logits", "--tokens", "x"},
                                                         {"tokenize", "--shape", "llama-3.2-1b"},
                                                         {"complete", "-p", "x", "--shape", "llama-3.2-1b"},
                                                         {"chat", "--shape", "llama-3.2-1b"},
                                                         {"serve", "--shape", "llama-3.2-1b"},
                                                         {"config"},
                                                         {"complete", "--shape", "x", "--model", "y"}};
    for (const auto& call : calls) {
        const Outcome outcome = run(call, "x");
        EXPECT_EQ(outcome.status, 2) << ::testing::PrintToString(call) << outcome.error;
        EXPECT_EQ(outcome.out, "");
        EXPECT_THAT(outcome.error, StartsWith("foresay: "));
        EXPECT_LT(outcome.error.size(), 250u) << outcome.error;
    }
}

TEST(Usage, HelpAndVersionAreOutput) {
    for (const std::string command : {"chat", "complete", "bench", "perplexity", "logits", "tokenize", "inspect"}) {
        const Outcome outcome = run({command, "--help"});
        EXPECT_EQ(outcome.status, 0);
        EXPECT_THAT(outcome.out, AllOf(HasSubstr("Usage: foresay " + command), HasSubstr("--set KEY=VALUE"),
                                       HasSubstr("--threads N")));
        std::istringstream lines(outcome.out);
        for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 80u) << line;
    }
    EXPECT_THAT(run({"--help"}).out,
                AllOf(HasSubstr("\n  chat "), HasSubstr("\n  inspect "), Not(HasSubstr("manual"))));
    EXPECT_THAT(run({"session", "--help"}).out, AllOf(HasSubstr("\n  list "), HasSubstr("\n  replay ")));
    EXPECT_THAT(run({"bench", "--help"}).out, AllOf(HasSubstr("\n  decode "), HasSubstr("\n  verify ")));
    EXPECT_THAT(run({"--version"}).out, StartsWith("foresay "));
}

TEST(World, WhatIsWrongIsOneSentenceAndStatusOne) {
    struct Case {
        std::vector<std::string> call;
        std::string message;
    };
    const std::string broken = write_scratch("broken.gguf", read(target()).substr(0, 100000));
    const std::string noise = write_scratch("noise.gguf", "GGUF\3\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    const std::string config = write_scratch("typo.toml", "[target]\nmodle = \"x\"\n");
    const std::string option = write_scratch("option.toml", "[target]\nmodel = \"" + target() +
                                                                "\"\n[sampling]\nchain = [\"wordlist\"]\n[[plugin]]\n"
                                                                "name = \"wordlist\"\n[plugin.options]\nforbid = 5\n"
                                                                "ignore_cas = true\n");
    const std::string gbnf = write_scratch("gbnf.toml", "[target]\nmodel = \"" + target() +
                                                            "\"\n[sampling]\nchain = [\"grammar\"]\n"
                                                            "[sampling.grammar]\ntext = 'root ::= b'\n"
                                                            "language = \"gbnf\"\n");
    const std::string schema = write_scratch("schema.json", "{\"not\":{}}");
    const std::string rules = write_scratch("rules.gbnf", "root ::= b\n");
    const std::string large = write_scratch("large.gbnf", std::string((1 << 20) + 1, '\n'));
    const std::vector<Case> cases = {
        {{"complete", "none.toml", "-p", "x"}, "none.toml"},
        {{"complete", option, "-p", "x"},
         "option.toml:8:10: wordlist.forbid must be a list of strings\n    forbid = 5\n             ^\nforesay: " +
             option +
             ":9:1: sampler 'wordlist' has no parameter 'ignore_cas'; did you mean 'ignore_case'?\n    ignore_cas = "
             "true\n    ^\n"},
        {{"complete", "-p", "x", "--set", "plugin.wordlist.options.forbid=5"},
         "--set #1: wordlist.forbid must be a list of strings\n    plugin.wordlist.options.forbid = 5\n"},
        {{"complete", gbnf, "-p", "x"}, "gbnf.toml:6:8: grammar: the grammar has no rule \"b\", which line 1 uses"},
        {{"complete", "--grammar", rules, "-p", "x"},
         "--grammar " + rules + ": grammar: the grammar has no rule \"b\", which line 1 uses"},
        {{"complete", "--json-schema", schema, "-p", "x"},
         "--json-schema " + schema + ": grammar: the schema cannot be used: \"not\" at # is not supported"},
        {{"complete", "--grammar", large, "-p", "x"},
         "the grammar " + large + " is larger than 1 MiB; give a smaller one"},
        {{"complete", "--model", "5", "-p", "x"}, "--model: 'target.model': no file at"},
        {{"complete", target(), "-p", "x"}, "is a model, not a configuration file; write --model"},
        {{"complete", source("tests/golden/tiny/llama2"), "-p", "x"}, "is a model, not a configuration file"},
        {{"complete", config, "-p", "x"}, "typo.toml:2:1: unknown key 'modle' in [target]; did you mean 'model'?"},
        {{"complete", "--model", "none.gguf", "-p", "x"}, "--model: 'target.model': no file at"},
        {{"complete", "--model", broken, "-p", "x"}, "broken.gguf"},
        {{"complete", "--model", noise, "-p", "x"}, "noise.gguf"},
        {{"complete", "--model", source("README.md"), "-p", "x"}, "README.md"},
        {{"complete", "--draft", broken, "-p", "x"}, "--draft: "},
        {{"complete", "-f", "none.txt"}, "none.txt"},
        {{"complete", "-p", "x", "--device", "cuda:99"}, "cuda:99"},
        {{"complete", "-p", "x", "--device", "gpu"}, "must be auto, cpu, cuda or cuda:N"},
        {{"complete", "-p", "x", "--device", "cpu,gpu"}, "must name cpu, cuda or cuda:N, not 'gpu'"},
        {{"complete", "-p", "x", "--device", "cpu,cpu"}, "names cpu twice"},
        {{"complete", "-p", "x", "--device", "cpu,cuda:99"}, "--device: cuda:99"},
        {{"complete", "-p", "x", "--device", "cpu,cuda:0", "--split-mode", "row"},
         "--split-mode: 'runtime.split_mode' row needs devices of one kind"},
        {{"complete", "-p", "x", "--device", "cpu,reference", "--set", "runtime.device_layers=[1,1]"},
         "given 2 layers together, and the model has"},
        {{"complete", "-p", "x", "--context", "100000"}, "longer than the 2048"},
        {{"complete", "-p", "x", "--set", "sampling.sed=1"}, "--set #1: unknown key 'sed'"},
        {{"complete", "-p", "x", "--set", "sampling.top_k.k=many"}, "--set #1: 'sampling.top_k.k' must be an integer"},
        {{"complete", "-p", "x", "--set", "plugin.wordlist.options.forbit=[]"}, "forbi"},
        {{"complete", "-p", "x", "--stop", ""}, "stop"},
        {{"tokenize", "--model", write_scratch("text.txt", "hello")}, "text.txt"},
        {{"inspect", "none.gguf"}, "none.gguf"},
        {{"plugin", "show", "topk"}, "did you mean 'top_k'?"},
        {{"plugin", "check", "top_k", "--only", "loads", "--only", "exports"},
         "nothing was checked: 'top_k' is built in, and --only names checks of a plugin's file"},
        {{"perplexity", "-f", write_scratch("short.txt", "x = 1\n")}, "less than one window"},
        {{"bench", "decode", "--shape", "no-such-shape"}, "no-such-shape"},
        {{"logits", "--model", target(), "--tokens", write_scratch("bad.json", "{\"tokens\": [99999]}")},
         "from 0 to 16383"},
        {{"logits", "--model", target(), "--tokens", write_scratch("deep.json", std::string(100000, '['))},
         "deep.json"},
    };
    for (const Case& one : cases) {
        const Outcome outcome = run(one.call, "x");
        EXPECT_EQ(outcome.status, 1) << ::testing::PrintToString(one.call);
        EXPECT_EQ(outcome.out, "");
        EXPECT_THAT(outcome.error, HasSubstr(one.message)) << ::testing::PrintToString(one.call);
    }
}

TEST(World, NothingInAFileReachesTheTerminalAsACommand) {
    const std::string key = write_scratch("key.toml", "[target]\n\"mo\\u001b[31m\\u009bdel\" = 1\n");
    std::string hostile = read(target());
    const auto name = hostile.find("llama", hostile.find("general.architecture"));
    hostile.replace(name, 5, "\x1b[2J\x07");
    const std::string model = write_scratch("hostile.gguf", hostile.substr(0, 600000));
    for (const auto& call : std::vector<std::vector<std::string>>{
             {"complete", key, "-p", "x"}, {"complete", "--model", model, "-p", "x"}, {"inspect", model}}) {
        const Outcome outcome = run(call);
        EXPECT_EQ(outcome.status, 1);
        EXPECT_NE(outcome.error, "");
        EXPECT_THAT(outcome.out + outcome.error,
                    AllOf(Not(HasSubstr("\x1b")), Not(HasSubstr("\xc2\x9b")), Not(HasSubstr("\x07"))));
    }
}

TEST(Complete, JsonHasEveryFieldOfTheDesign) {
    const json out = complete({"-p", kPrompt, "--seed", "7", "--branch", "2"});
    EXPECT_EQ(out.at("completion_tokens"), 24);
    EXPECT_EQ(out.at("token_ids").size(), 24u);
    EXPECT_GT(out.at("prompt_tokens"), 3);
    EXPECT_EQ(out.at("finish_reason"), "length");
    EXPECT_EQ(out.at("seed"), 7);
    EXPECT_EQ(out.at("branch"), 2);
    EXPECT_TRUE(out.at("text").is_string());
    for (const char* key : {"load_ms", "prefill_ms", "ttft_ms", "decode_ms", "decode_tokens_per_second"}) {
        EXPECT_GT(out.at("timings").at(key).get<double>(), 0.0) << key;
    }
    const json& speculation = out.at("speculation");
    EXPECT_EQ(speculation.at("mode"), "auto");
    for (const char* key : {"rounds", "drafted", "accepted", "mean_run_length"}) {
        EXPECT_TRUE(speculation.at(key).is_number()) << key;
    }
    EXPECT_TRUE(speculation.contains("acceptance_rate"));
    EXPECT_TRUE(speculation.at("sources").is_object());
}

TEST(Complete, TextDependsOnSeedAndBranchOnly) {
    const json reference = complete({"-p", kPrompt, "--speculation", "off"});
    EXPECT_EQ(reference.at("speculation").at("drafted"), 0);
    EXPECT_TRUE(reference.at("speculation").at("acceptance_rate").is_null());
    for (const std::string length : {"auto", "1", "4", "9"}) {
        const json other = complete({"-p", kPrompt, "--speculation", length});
        EXPECT_EQ(other.at("token_ids"), reference.at("token_ids")) << length;
        EXPECT_EQ(other.at("text"), reference.at("text"));
    }
    const json fixed = complete({"-p", kPrompt, "--speculation", "4", "--threads", "1"});
    EXPECT_EQ(fixed.at("token_ids"), reference.at("token_ids"));
    EXPECT_GT(fixed.at("speculation").at("drafted"), 0);
    EXPECT_EQ(fixed.at("speculation").at("sources").at("draft").at("drafted"), fixed.at("speculation").at("drafted"));
    EXPECT_EQ(complete({"-p", kPrompt, "--speculation", "0"}).at("token_ids"), reference.at("token_ids"));
    // The draft model decides nothing.
    EXPECT_EQ(complete({"-p", kPrompt, "--draft", target()}).at("token_ids"), reference.at("token_ids"));
    EXPECT_NE(complete({"-p", kPrompt, "--seed", "1"}).at("token_ids"), reference.at("token_ids"));
    EXPECT_NE(complete({"-p", kPrompt, "--branch", "1"}).at("token_ids"), reference.at("token_ids"));
}

TEST(Complete, StreamsBytesAlone) {
    const json reference = complete({"-p", kPrompt});
    const Outcome text = run({"complete", "-p", kPrompt, "-n", "24"});
    EXPECT_EQ(text.status, 0);
    EXPECT_EQ(text.out, reference.at("text").get<std::string>());
    EXPECT_EQ(text.error, "");
    // From a file and from a pipe: the same bytes, the newline at the end included.
    EXPECT_EQ(run({"complete", "-f", write_scratch("prompt.txt", kPrompt), "-n", "24"}).out, text.out);
    EXPECT_EQ(run({"complete", "-n", "24"}, kPrompt).out, text.out);
    const Outcome ids = run({"complete", "-p", kPrompt, "-n", "24", "--token-ids"});
    std::string expected;
    for (const json& id : reference.at("token_ids")) expected.append(expected.empty() ? "" : " ").append(id.dump());
    EXPECT_EQ(ids.out, expected + "\n");
}

TEST(Complete, DraftsFromAPrediction) {
    const json reference = complete({"-p", kPrompt});
    const std::string file = write_scratch("prediction.txt", reference.at("text"));
    const json predicted = complete({"-p", kPrompt, "--prediction", file});
    EXPECT_EQ(predicted.at("token_ids"), reference.at("token_ids"));
    EXPECT_TRUE(predicted.at("speculation").at("sources").contains("prediction"));
    // Of one that is longer than the context, the beginning counts.
    const std::string longer =
        write_scratch("longer.txt", reference.at("text").get<std::string>() + std::string(200'000, 'x') + " = 1\n");
    const json cut = complete({"-p", kPrompt, "--prediction", longer});
    EXPECT_EQ(cut.at("token_ids"), reference.at("token_ids"));
    EXPECT_TRUE(cut.at("speculation").at("sources").contains("prediction"));
    const Outcome missing = run({"complete", "-p", kPrompt, "--prediction", file + ".none"});
    EXPECT_EQ(missing.status, 1);
    EXPECT_NE(missing.error.find(file + ".none"), std::string::npos);
    const Outcome no_place = run({"complete", "--fim", "a.py:1", "--prediction", file});
    EXPECT_EQ(no_place.status, 2);
}

TEST(Complete, StopsWhereItIsTold) {
    const json reference = complete({"-p", kPrompt});
    const std::string text = reference.at("text");
    const std::string stop = text.substr(text.size() / 2, 3);
    const json stopped = complete({"-p", kPrompt, "--stop", "never occurs", "--stop", stop});
    EXPECT_EQ(stopped.at("finish_reason"), "stop");
    EXPECT_EQ(stopped.at("text"), text.substr(0, text.find(stop)));
    const json dashed = complete({"-p", "- item", "--stop", "-"});
    EXPECT_THAT(dashed.at("text").get<std::string>(), Not(HasSubstr("-")));
    const json nothing = complete({"-p", kPrompt, "--temperature", "0", "--set", "target.context=40", "-n", "0"});
    EXPECT_EQ(nothing.at("finish_reason"), "length");
    EXPECT_LE(nothing.at("prompt_tokens").get<int>() + nothing.at("completion_tokens").get<int>(), 41);
}

TEST(Complete, TemperatureIsAppendedWhereTheChainHasNone) {
    const std::vector<std::string> bare = {"--set", "plugin=[]", "--set", "sampling.chain=[]", "--temperature", "0"};
    std::vector<std::string> greedy = {"-p", kPrompt, "--seed", "1"};
    greedy.insert(greedy.end(), bare.begin(), bare.end());
    const json one = complete(greedy);
    greedy[3] = "2";
    EXPECT_EQ(complete(greedy).at("token_ids"), one.at("token_ids"));
}

TEST(Complete, ForbiddenWordsDoNotAppear) {
    const json free = complete({"-p", kPrompt, "--temperature", "0"});
    EXPECT_THAT(free.at("text").get<std::string>(), HasSubstr("return"));
    const json bound =
        complete({"-p", kPrompt, "--temperature", "0", "--set", "plugin.wordlist.options.forbid=[\"return\"]"});
    EXPECT_THAT(bound.at("text").get<std::string>(), Not(HasSubstr("return")));
}

TEST(Complete, InterruptKeepsWhatThereIs) {
    Call call;
    call.arguments = {"complete", "-p", kPrompt, "-n", "0", "--ignore-eos", "--speculation", "off"};
    call.on_output = [](pid_t child) { ::kill(child, SIGINT); };
    const Outcome outcome = run(call);
    EXPECT_EQ(outcome.status, 130);
    EXPECT_THAT(outcome.out, Not(IsEmpty()));
    EXPECT_EQ(outcome.error, "");
    const std::string whole = run({"complete", "-p", kPrompt, "-n", "1500", "--ignore-eos"}).out;
    EXPECT_THAT(whole, StartsWith(outcome.out));
    EXPECT_LT(outcome.out.size(), whole.size());
}

TEST(Complete, ClosedReaderEndsQuietly) {
    Call call;
    call.arguments = {"complete", "-p", kPrompt, "-n", "64"};
    call.close_output = true;
    const Outcome outcome = run(call);
    EXPECT_EQ(outcome.status, 0);
    EXPECT_EQ(outcome.error, "");
}

TEST(Chat, WithoutATerminalThereAreNoPromptsAndNoColour) {
    const Outcome outcome = run({"chat", "--lines", "-n", "8"}, "def f(x):\n/stats\n/nonsense\nclass A:\n");
    EXPECT_EQ(outcome.status, 1) << "a line that fails must show in the status of a script";
    EXPECT_THAT(outcome.out, AllOf(Not(HasSubstr("> ")), Not(HasSubstr("\x1b"))));
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("unknown command /nonsense"), HasSubstr("answers   1, 8 tokens")));
    EXPECT_THAT(outcome.error, Not(HasSubstr("\x1b")));
    // The first answer is what `complete` prints.
    const Outcome completed = run({"complete", "-p", "def f(x):\n", "-n", "8"});
    EXPECT_THAT(outcome.out, StartsWith(completed.out + "\n"));
    EXPECT_EQ(run({"chat", "--lines"}, "").status, 0);
    EXPECT_EQ(run({"chat", "--lines"}, "/quit\ndef f():\n").out, "");
}

TEST(Chat, RetriesAreBranchesOfComplete) {
    const Outcome outcome =
        run({"chat", "--lines", "-n", "12"}, "def f(x):\n/retry\n/retry\n/undo\n/retry\n/retry 9\n");
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    std::string expected;
    for (const std::string branch : {"0", "1", "2", "3"}) {
        expected += run({"complete", "-p", "def f(x):\n", "-n", "12", "--branch", branch}).out + "\n";
    }
    expected += run({"complete", "-p", "def f(x):\n", "-n", "12", "--seed", "9"}).out + "\n";
    EXPECT_EQ(outcome.out, expected);
}

TEST(Chat, SlashesAreNeverSentUnlessDoubled) {
    const Outcome doubled = run({"chat", "--lines", "-n", "6"}, "//x\n");
    EXPECT_EQ(doubled.out, run({"complete", "-p", "/x\n", "-n", "6"}).out + "\n");
    const Outcome python = run({"chat", "--lines", "-n", "6"}, "a = 1 + \\\n");
    EXPECT_EQ(python.out, run({"complete", "-p", "a = 1 + \\\n", "-n", "6"}).out + "\n") << "a backslash is text";
}

TEST(Chat, SetTakesEffectAndRefusesNonsense) {
    const Outcome outcome = run({"chat", "--lines", "-n", "8"},
                                "/set sampling.seed 5\n/set sampling.sed 5\n/set target.context 99999\ndef f(x):\n"
                                "/clear\n/set target.context 8\ndef f(x):\n/set runtime.threads 1\n/set target.context "
                                "64\n/clear\ndef f(x):\n");
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("sampling.seed = 5"), HasSubstr("did you mean 'seed'?"),
                                     HasSubstr("longer than the 2048"), HasSubstr("target.context = 8\n")));
    // Another context size means another cache, another number of threads another backend; the text is the same.
    const std::string all = run({"complete", "-p", "def f(x):\n", "-n", "8", "--seed", "5"}).out + "\n";
    const std::string cut =
        run({"complete", "-p", "def f(x):\n", "-n", "8", "--seed", "5", "--context", "8"}).out + "\n";
    EXPECT_EQ(outcome.out, all + cut + all);
}

TEST(Chat, SetReachesPluginsAndLimits) {
    const Outcome outcome = run({"chat", "--lines", "-n", "4"},
                                "/set chat.max_tokens 9\n/set plugin.wordlist.options.forbid=[\"return\"]\n"
                                "/set sampling.temperature.value 0\ndef fib(n):\n");
    EXPECT_THAT(outcome.error, HasSubstr("plugin.wordlist.options.forbid = [\"return\"]\n"));
    EXPECT_EQ(outcome.out, run({"complete", "-p", "def fib(n):\n", "-n", "9", "--temperature", "0", "--set",
                                "plugin.wordlist.options.forbid=[\"return\"]"})
                                   .out +
                               "\n");
    EXPECT_THAT(outcome.out, Not(HasSubstr("return")));
}

TEST(Chat, ALanguageForColoursMustBeKnown) {
    const Outcome start = run({"chat", "--set", "chat.language=pyton"}, "");
    EXPECT_EQ(start.status, 1);
    EXPECT_THAT(start.error, AllOf(HasSubstr("--set #1: chat.language is 'pyton'"), HasSubstr("python")));
    const Outcome later = run({"chat", "--lines"}, "/set chat.language cobol\n/show chat.language\n");
    EXPECT_THAT(later.error,
                AllOf(HasSubstr("foresay: chat.language is 'cobol'"), HasSubstr("chat.language = \"python\"")));
}

TEST(Chat, HelpComesFromTheTable) {
    const Outcome all = run({"chat", "--lines"}, "/help\n");
    EXPECT_THAT(all.error, AllOf(HasSubstr("/retry [SEED]"), HasSubstr("/set KEY VALUE"), HasSubstr("Ctrl-C")));
    const Outcome one = run({"chat", "--lines"}, "/help retry\n/help /stats\n/? quit\n/help retyr\n");
    EXPECT_THAT(one.error, AllOf(HasSubstr("/retry [SEED]\nGenerate the last answer again"), HasSubstr("/stats\n"),
                                 HasSubstr("Also /exit."), HasSubstr("did you mean /retry?")));
}

TEST(Chat, TheBeginningOfANameIsEnoughWhereOnlyOneHasIt) {
    EXPECT_THAT(run({"chat", "--lines"}, "/stat\n").error, HasSubstr("answers   0"));
    EXPECT_THAT(run({"chat", "--lines"}, "/s\n").error,
                AllOf(HasSubstr("/s is ambiguous: it could be "), HasSubstr("/set")));
    EXPECT_THAT(run({"chat", "--lines"}, "/\n").error, HasSubstr("/help lists them"));
    EXPECT_EQ(run({"chat", "--lines", "-n", "4"}, "/exit\nx\n").out, "");
}

TEST(Chat, ReferenceIsWhatTheTableSays) {
    EXPECT_EQ(read(source("docs/repl.md")), run({"repl-reference"}).out)
        << "docs/repl.md is not what the command table says; renew it: foresay repl-reference > docs/repl.md";
}

TEST(Chat, EndsWhenItsOutputCannotBeWritten) {
    const std::string call = "printf 'x\\ny\\n' | " FORESAY_PROGRAM " chat --lines -n 2 2>&1 >/dev/full";
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(call.c_str(), "r"), ::pclose);
    ASSERT_TRUE(pipe);
    std::string error(4096, '\0');
    error.resize(std::fread(error.data(), 1, error.size(), pipe.get()));
    EXPECT_EQ(error, "foresay: cannot write to standard output: No space left on device\n");
}

TEST(Chat, ClearAndUndoKeepTheDocument) {
    // The cleared conversation comes back, and its continuation is what it would have been.
    const Outcome straight = run({"chat", "--lines", "-n", "6"}, "import os\nimport sys\n");
    const Outcome detour = run({"chat", "--lines", "-n", "6"}, "import os\n/clear\nx = 1\n/undo\n/undo\nimport sys\n");
    const std::string first = run({"complete", "-p", "import os\n", "-n", "6"}).out + "\n";
    const std::string other = run({"complete", "-p", "x = 1\n", "-n", "6"}).out + "\n";
    ASSERT_THAT(straight.out, StartsWith(first));
    EXPECT_EQ(detour.out, first + other + straight.out.substr(first.size()));
}

TEST(Tokenize, PrintsIds) {
    const std::string text = "def f(x):\n    return x\n";
    const json ids = json::parse(run({"tokenize", "--model", target(), "--json"}, text).out).at("token_ids");
    EXPECT_EQ(ids.at(0), 0);  // BOS
    const json bare =
        json::parse(run({"tokenize", "--model", target(), "--json", "--no-special"}, text).out).at("token_ids");
    EXPECT_EQ(bare.size() + 1, ids.size());
    EXPECT_EQ(run({"tokenize", "--model", target()}, "").out, "0\n");
    EXPECT_EQ(run({"tokenize", "--model", target(), "-f", write_scratch("t.py", text), "--json"}).out,
              run({"tokenize", "--model", target(), "--json"}, text).out);
}

TEST(Logits, RowsDoNotDependOnWidth) {
    std::string tokens = "{\"tokens\": [0", positions = "\"positions\": [0";
    for (int i = 1; i < 40; ++i) {
        tokens += ", " + std::to_string(200 + 7 * i);
        positions += ", " + std::to_string(i);
    }
    const std::string file = write_scratch("tokens.json", tokens + "], " + positions + "]}");
    const Outcome inputs = run({"logits", "--model", target(), "--tokens", file, "--hex"});
    ASSERT_EQ(inputs.status, 0) << inputs.error;
    const json rows = json::parse(inputs.out).at("logits");
    ASSERT_EQ(rows.size(), 40u);
    EXPECT_EQ(rows[0].size(), 16384u);
    for (const std::string width : {"1", "3", "16"}) {
        EXPECT_EQ(run({"logits", "--model", target(), "--tokens", file, "--hex", "--width", width}).out, inputs.out)
            << width;
    }
    const json numbers = json::parse(run({"logits", "--model", target(), "--tokens",
                                          write_scratch("one.json", "{\"tokens\": [0, 5], \"positions\": [1]}")})
                                         .out);
    EXPECT_EQ(numbers.at("logits").size(), 1u);
    EXPECT_TRUE(numbers.at("logits")[0][0].is_number_float());
}

TEST(Perplexity, ScoresTheSecondHalves) {
    std::string text;
    for (int i = 0; i < 40; ++i)
        text += "def function_" + std::to_string(i) + "(x):\n    return x + " + std::to_string(i) + "\n\n\n";
    const std::string file = write_scratch("text.py", text);
    const json out = json::parse(run({"perplexity", "-f", file, "--context", "128", "--json"}).out);
    EXPECT_EQ(out.at("context"), 128);
    // What the model gives to these texts, computed in another way: the reference backend, row by row, and the softmax
    // in extended precision. The tolerance is for the int8 inputs of the CPU backend, which move it by 0.13 %.
    EXPECT_EQ(out.at("tokens"), 4 * 63);
    EXPECT_NEAR(out.at("perplexity").get<double>(), 1.046649, 0.005 * 1.046649);
    // Words in disorder are harder to predict.
    std::string noise;
    for (int i = 0; i < 150; ++i) noise += std::to_string((i * 7919) % 1009) + (i % 3 ? " qx" : "\nZ");
    const json worse =
        json::parse(run({"perplexity", "-f", write_scratch("noise.txt", noise), "--context", "128", "--json"}).out);
    EXPECT_EQ(worse.at("tokens"), 4 * 63);
    EXPECT_NEAR(worse.at("perplexity").get<double>(), 15.332588, 0.005 * 15.332588);
}

TEST(Perplexity, DamagedWeightsAreAnError) {
    std::string model = read(draft());
    model.replace(model.size() - 6000000, 6000000, 6000000, '\xff');  // every number is NaN
    std::string text;
    for (int i = 0; i < 400; ++i) text += "x = 1\n";
    const Outcome outcome = run({"perplexity", "--model", write_scratch("nan.gguf", model), "-f",
                                 write_scratch("long.txt", text), "--context", "64"});
    EXPECT_EQ(outcome.status, 1) << outcome.out;
    EXPECT_THAT(outcome.error, HasSubstr("hold NaN or infinities"));
}

TEST(CommandLine, OldSpellingsOfOptionsAreAcceptedAndNotShown) {
    const Outcome help = run({"complete", "--help"});
    EXPECT_THAT(help.out, AllOf(HasSubstr("--quant TYPE"), HasSubstr("--draft-quant TYPE")));
    EXPECT_THAT(help.out, Not(HasSubstr("encoding")));
    for (const std::string name : {"--quant", "--encoding"}) {
        EXPECT_THAT(run({"logits", "--shape", "llama-3.2-1b", name, "q9_9", "--tokens",
                         write_scratch("few.json", "{\"tokens\": [1], \"positions\": [0]}")})
                        .error,
                    HasSubstr("q9_9"))
            << name;
    }
}

TEST(CommandLine, SaysWhatWasProbablyMeant) {
    const std::vector<std::pair<std::vector<std::string>, std::string>> mistakes = {
        {{"caht"}, "foresay: unknown command 'caht'; did you mean 'chat'? (see foresay --help)"},
        {{"sesion", "list"}, "foresay: unknown command 'sesion'; did you mean 'session'?"},
        {{"session", "lst"},
         "foresay: unknown command 'session lst'; did you mean 'list'? (see foresay session --help)"},
        {{"chat", "--contniue"}, "foresay: unknown option '--contniue' for chat; did you mean '--continue'?"},
        {{"complete", "-p", "x", "--tempreature=0"},
         "unknown option '--tempreature' for complete; did you mean '--temperature'?"},
        {{"chat", "--xyzzy"}, "foresay: unknown option '--xyzzy' for chat (see foresay chat --help)"},
        {{"session"}, "foresay: a command is required (see foresay session --help)"},
        {{"inspect"}, "PATH is required"},
        {{"complete", "one.toml", "two.toml"}, "foresay: unexpected argument 'two.toml'"},
        {{"complete", "-p"}, "foresay: -p needs a value"},
        {{"complete", "-p", "x", "-f", "y"}, "-f and -p cannot be used together"},
        {{"bench", "decod"}, "foresay: unknown benchmark 'decod'; did you mean 'decode'?"},
        {{"bench", "decode", "--runs", "0"}, "--runs: must be an integer from 1 to 1000, not '0'"},
        {{"complete", "-p", "x", "--context", "many"}, "--context: must be an integer, not 'many'"},
        {{"complete", "-p", "x", "--quant", "q8_0"}, "foresay: --quant needs --shape or --inflate"},
        // The spelling of earlier versions, which is the same option.
        {{"complete", "-p", "x", "--encoding", "q8_0"}, "foresay: --quant needs --shape or --inflate"},
        {{"bench", "decode", "--shape", "s", "--quant", "q4_0", "--encoding", "q8_0"}, "cannot be used together"},
    };
    for (const auto& [arguments, sentence] : mistakes) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.status, 2) << sentence;
        EXPECT_THAT(outcome.error, HasSubstr(sentence));
    }
}

TEST(Inspect, SaysWhatAFileIsAndWhetherTwoPair) {
    const Outcome one = run({"inspect", target()});
    EXPECT_EQ(one.status, 0);
    EXPECT_THAT(one.out, AllOf(HasSubstr("general.architecture"), HasSubstr("token_embd.weight"), HasSubstr("Q4_K"),
                               HasSubstr("16384, tied head"), ContainsRegex("would run on +(cpu|cuda) \\(")));
    EXPECT_THAT(run({"inspect", target(), "--device", "cpu", "--threads", "1"}).out,
                ContainsRegex("would run on +cpu \\(.*1 thread\\)"));
    // Layers on two devices.
    const Outcome split =
        run({"inspect", target(), "--device", "cpu,reference", "--set", "runtime.device_layers=[1,11]"});
    EXPECT_THAT(split.out,
                AllOf(ContainsRegex("would run on +layers? 0 on cpu \\(.*, 1-11 on reference"),
                      ContainsRegex("on cpu +layer 0, [0-9.]+ MiB of "),
                      ContainsRegex("on reference +layers 1-11, [0-9.]+ MiB of "),
                      Not(HasSubstr("expected speed"))));  // the loops of the reference are no matter of memory
    EXPECT_THAT(run({"inspect", target(), "--device", "cpu,reference", "--set", "runtime.device_layers=[12,0]"}).out,
                ContainsRegex("expected speed +about [0-9.]+ tokens per second: kernels read weights at [0-9.]+ GB/s"));
    // Outputs of each layer on two.
    const Outcome rows = run({"inspect", target(), "--device", "cpu,cpu", "--split-mode", "row"});
    EXPECT_THAT(rows.out,
                AllOf(ContainsRegex("would run on +each layer divided over cpu \\("),
                      ContainsRegex("on cpu +[0-9]+ of [0-9]+ KV heads, [0-9]+ of [0-9]+ rows of O and down"),
                      HasSubstr("of gate and up"), HasSubstr("of the LM head, "), HasSubstr("expected speed")));
    const Outcome pair = run({"inspect", target(), draft()});
    EXPECT_EQ(pair.status, 0);
    EXPECT_THAT(pair.out,
                AllOf(HasSubstr("they can pair"), HasSubstr("memory with a context of 2048 positions"),
                      HasSubstr("cache "), HasSubstr("available now"), ContainsRegex("\n  on +(cpu|cuda) \\(")));
    EXPECT_THAT(run({"inspect", target(), draft(), "--context", "64"}).out, HasSubstr("a context of 64 positions"));
    EXPECT_THAT(run({"inspect", draft(), target()}).out, HasSubstr("name the large model first"));
}

TEST(Devices, WhatRowsCostThatCross) {
    const Outcome outcome = run({"bench", "exchange", "--device", "cpu,reference", "--runs", "1", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    const auto report = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(report["width"], 4096);
    ASSERT_GE(report["crossings"].size(), 8u);
    EXPECT_EQ(report["crossings"][0]["bytes"], 4096 * 4);
    EXPECT_EQ(report["crossings"][0]["way"], "host memory");
    EXPECT_GT(report["crossings"][0]["us"], 0.0);
    EXPECT_THAT(run({"bench", "exchange", "--device", "cpu"}).error,
                HasSubstr("name them, as with --device cuda:0,cpu"));
}

TEST(Devices, ASessionSaysThatItsLayersWereElsewhere) {
    const auto with = [](const std::string& layers) {
        return std::vector<std::string>{"-n",        "2",
                                        "--session", "split",
                                        "--device",  "cpu,reference",
                                        "--threads", "1",
                                        "--set",     "runtime.device_layers=" + layers};
    };
    const auto said = [](const Outcome& outcome) { return outcome.out + outcome.error; };
    EXPECT_EQ(chat("x = 1\n", with("[11,1]")).status, 0);
    const Outcome same = chat("y = 2\n", with("[11,1]"));
    EXPECT_EQ(same.status, 0);
    EXPECT_THAT(said(same), Not(HasSubstr("was generated on")));
    EXPECT_THAT(said(chat("z = 3\n", with("[10,2]"))),
                ContainsRegex("the session was generated on layers 0-10 on cpu \\(.*\\), 11 on reference \\(.*\\), but "
                              "this is layers 0-9 on cpu \\(.*\\), 10-11 on reference"));
}

TEST(Inspect, SaysHowWeightsAreStored) {
    EXPECT_THAT(run({"inspect", target()}).out,
                AllOf(ContainsRegex("\n  Q4_K +[0-9]+ tensors, [0-9.]+ MiB \\(4\\.50 bits\\)\n"),
                      ContainsRegex("\n  read per token +[0-9.]+ MiB\n"), Not(HasSubstr("in memory")),
                      ContainsRegex("\n  expected speed +(about [0-9]+ tokens per second: kernels read weights|"
                                    "[0-9]+ tokens per second at most: memory is read) at [0-9.]+ GB/s\n")));
    const auto report = nlohmann::json::parse(run({"inspect", "--json", target()}).out);
    EXPECT_EQ(report["runs"], true);
    EXPECT_EQ(report["architecture"], "llama");
    EXPECT_EQ(report["problem"], "");
    EXPECT_GT(report["read_per_token"], 1 << 20);
    EXPECT_NEAR(report["expected_tokens_per_second"].get<double>(),
                report["read_bandwidth"].get<double>() / report["read_per_token"].get<double>(), 1.0);
    EXPECT_TRUE(report["by_kernels"].is_boolean()) << report["by_kernels"];
    std::int64_t bytes = 0;
    for (const auto& one : report["weights"]) {
        EXPECT_EQ(one["bytes"], one["memory_bytes"]) << one;
        EXPECT_TRUE(one["in_memory"].is_null()) << one;
        bytes += one["bytes"].get<std::int64_t>();
    }
    EXPECT_GT(bytes, 1 << 20);
    // Loops in C++ do not wait for memory.
    const Outcome loops = run({"inspect", "--json", target(), "--device", "reference"});
    EXPECT_TRUE(nlohmann::json::parse(loops.out)["expected_tokens_per_second"].is_null()) << loops.out;
    EXPECT_TRUE(nlohmann::json::parse(loops.out)["by_kernels"].is_null()) << loops.out;
    const Outcome bare = run({"inspect", "--json", FORESAY_UNPACKED_GOLDENS "/vocab/ggml-vocab-gpt-2.gguf"});
    EXPECT_EQ(bare.status, 1);
    EXPECT_EQ(nlohmann::json::parse(bare.out)["runs"], false);
    EXPECT_EQ(run({"inspect", "--json", target(), draft()}).status, 2);
}

// Q5_0 has no kernels of its own: its numbers are Q8_0 there, in panels of five bits on the CPU.
TEST(Inspect, SaysWhatGrowsInMemory) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const std::string file = (test::goldens_folder() / "families/llama/llama-Q5_0.gguf").string();
    const std::string five = run({"inspect", file, "--device", "cpu"}).out;
    EXPECT_THAT(five, ContainsRegex("\n  Q5_0 +[0-9]+ tensors, [0-9.]+ KiB \\(5\\.50 bits\\); in memory q8_0 in "
                                    "narrower panels, [0-9.]+ KiB\n"));
    EXPECT_THAT(five, Not(HasSubstr("in the file, in memory"))) << "as many bytes";
    const std::string three =
        run({"inspect", (test::goldens_folder() / "families/llama/llama-Q3_K_M.gguf").string(), "--device", "cpu"}).out;
    EXPECT_THAT(three, ContainsRegex("\n  in the file, in memory +[0-9.]+ KiB, [0-9.]+ KiB "
                                     "\\(no number changes\\)\n"));
    // Bits per weight in the panels of the CPU, of which a table has none: a token reads one row of it.
    struct Case {
        const char *file, *type, *kept;
        double bits;
    };
    constexpr Case kCases[] = {
        {"Q5_0", "Q5_0", "q8_0", 5.5}, {"IQ4_NL", "IQ4_NL", "q8_0", 4.5}, {"Q3_K_M", "Q3_K", "q6_k", 3.625}};
    for (const auto& [name, type, kept, bits] : kCases) {
        const auto path = test::goldens_folder() / ("families/llama/llama-" + std::string(name) + ".gguf");
        const auto report = nlohmann::json::parse(run({"inspect", "--json", "--device", "cpu", path.string()}).out);
        EXPECT_TRUE(report["device_bytes"].is_null());
        int found = 0;
        for (const auto& one : report["weights"]) {
            if (one["encoding"] != type) continue;
            ++found;
            EXPECT_EQ(one["in_memory"], kept);
            EXPECT_NEAR(one["memory_bytes"].get<double>() * 8 / one["values"].get<double>(), bits, 0.001) << type;
        }
        EXPECT_EQ(found, 1) << type;
    }
}

// What is refused is listed all the same, with its bytes.
TEST(Inspect, ListsWhatItRefuses) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const std::string good = (test::goldens_folder() / "families/llama/llama-Q4_K_M.gguf").string();
    std::ifstream in(good, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    const std::string name = "blk.0.ffn_down.weight";
    const std::size_t at = bytes.find(name);
    ASSERT_NE(at, std::string::npos);
    // After the name: the number of dimensions, two sizes, the type. IQ4_K has blocks of Q4_K's size.
    bytes[at + name.size() + 4 + 16] = static_cast<char>(139);
    const std::string file = write_scratch("iq4_k.gguf", bytes);
    const Outcome refused = run({"inspect", "--json", file});
    EXPECT_EQ(refused.status, 1);
    const auto report = nlohmann::json::parse(refused.out);
    EXPECT_EQ(report["runs"], false);
    EXPECT_THAT(report["problem"], HasSubstr("is stored as IQ4_K (type 139, of ik_llama.cpp), which foresay cannot"));
    std::int64_t own = 0;
    for (const auto& one : report["weights"]) {
        if (one["encoding"] == "IQ4_K (type 139, of ik_llama.cpp)") own = one["bytes"];
        EXPECT_TRUE(one["memory_bytes"].is_null()) << one;
    }
    EXPECT_GT(own, 0);
    EXPECT_EQ(own % 144, 0);
}

TEST(Config, ChecksAndShows) {
    const Outcome good = run({"config", "check", source("configs/python-coder.toml")});
    EXPECT_EQ(good.status, 0) << good.error;
    EXPECT_THAT(good.out, HasSubstr("python-coder.toml: ok"));
    const std::string bad = write_scratch("bad.toml", "[chat]\nstyel = 1\n");
    const Outcome mixed = run({"config", "check", source("configs/python-coder.toml"), bad});
    EXPECT_EQ(mixed.status, 1);
    EXPECT_THAT(mixed.out, HasSubstr("ok"));
    EXPECT_THAT(mixed.error, HasSubstr("bad.toml:2:1: unknown key 'styel' in [chat]; did you mean 'style'?"));
    // Mistakes that show only when the models are opened are found, too.
    const std::string begin = "[target]\nmodel = \"" + target() + "\"\n";
    const std::string longer = write_scratch("longer.toml", begin + "context = 4096\n");
    EXPECT_THAT(run({"config", "check", longer}).error, HasSubstr("longer.toml:3:1: the context of 4096 positions"));
    const std::string unlike =
        write_scratch("unlike.toml", begin + "[draft]\nmodel = \"" + source("tests/golden/tiny/llama2") + "\"\n");
    const Outcome unpaired = run({"config", "check", unlike});
    EXPECT_EQ(unpaired.status, 1);
    EXPECT_THAT(unpaired.error, AllOf(HasSubstr("unlike.toml:4:1: "), HasSubstr("cannot draft for")));
    const Outcome shown = run({"config", "show", "--threads", "3", "--set", "speculation.max_draft=5"});
    EXPECT_EQ(shown.status, 0);
    EXPECT_THAT(shown.out, AllOf(HasSubstr("# --threads"), HasSubstr("max_draft = 5"), HasSubstr("# default")));
    // What is shown is a configuration.
    EXPECT_EQ(run({"config", "check", write_scratch("shown.toml", shown.out)}).status, 0);
}

TEST(Plugins, AreListedAndShown) {
    const Outcome list = run({"plugin", "list"});
    EXPECT_EQ(list.status, 0);
    EXPECT_THAT(list.out, AllOf(HasSubstr("temperature"), HasSubstr("wordlist")));
    EXPECT_THAT(run({"plugin", "show", "wordlist"}).out, HasSubstr("forbid"));
    EXPECT_THAT(run({"plugin", "show", "top_k"}).out, HasSubstr("k = 40"));
    EXPECT_THAT(run({"plugin", "show", "top_k"}).out, HasSubstr("(integer, at least 0, at most "));
}

TEST(Bench, MeasuresAndPrintsJson) {
    for (const std::string kind : {"decode", "verify", "prefill", "kernels"}) {
        const Outcome outcome = run({"bench", kind, "--runs", "1", "-n", "8", "--json"});
        ASSERT_EQ(outcome.status, 0) << kind << outcome.error;
        EXPECT_GT(json::parse(outcome.out).at("bandwidth_bytes_per_second").get<double>(), 1e8) << kind;
    }
    // Rows of several sequences in one forward, as many of each as 128 rows allow.
    const Outcome many = run({"bench", "verify", "--sequences", "2,40", "--in", "16", "--runs", "1", "--json"});
    ASSERT_EQ(many.status, 0) << many.error;
    std::vector<std::pair<int, int>> forwards;
    const json measured = json::parse(many.out);
    for (const json& step : measured.at("steps")) {
        forwards.emplace_back(step.at("sequences"), step.at("rows_of_each"));
        EXPECT_GT(step.at("rows_per_second").get<double>(), 0.0);
    }
    EXPECT_THAT(forwards, ElementsAre(Pair(2, 1), Pair(2, 2), Pair(2, 4), Pair(2, 8), Pair(40, 1), Pair(40, 2)));
    const Outcome deep = run({"bench", "verify", "--sequences", "2", "--in", "9000", "--runs", "1"});
    EXPECT_EQ(deep.status, 2);
    EXPECT_THAT(deep.error, HasSubstr("use --context"));
    const std::string prompts =
        write_scratch("prompts.jsonl", "{\"id\": \"a\", \"kind\": \"code\", \"prompt\": \"def f(x):\"}\n");
    const Outcome outcome = run({"bench", source("configs/python-coder.toml"), "speculation", "--prompts", prompts,
                                 "--runs", "1", "-n", "16", "--temperature", "0", "--json"});
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    const json out = json::parse(outcome.out);
    EXPECT_EQ(out.at("prompts").size(), 1u);
    EXPECT_GT(out.at("geometric_mean").get<double>(), 0.0);
    EXPECT_EQ(run({"bench", "replay", "--prompts", prompts, "--runs", "1", "-n", "16"}).status, 0);
}

TEST(Configs, EveryFileOfTheFolderLoads) {
    int files = 0;
    for (const auto& entry : std::filesystem::directory_iterator(source("configs"))) {
        if (entry.path().extension() != ".toml") continue;
        ++files;
        const std::string path = entry.path().string();
        // Users download the other pairings' models: here the bundled ones replace them.
        const bool bundled = entry.path().stem() == "python-coder";
        std::vector<std::string> models;
        if (!bundled) models = {"--model", target(), "--draft", draft(), "--context", "2048"};
        const auto call = [&](std::vector<std::string> arguments) {
            arguments.insert(arguments.end(), models.begin(), models.end());
            return run(arguments);
        };
        const Outcome outcome = call({"config", "check", path});
        EXPECT_EQ(outcome.status, 0) << outcome.error;
        EXPECT_EQ(call({"complete", path, "-p", "x = ", "-n", "4"}).status, 0) << path;
        if (bundled) continue;
        // A file's path names no file here, and a name of the hub is not in the cache.
        EXPECT_THAT(run({"config", "check", path}).error,
                    AnyOf(AllOf(HasSubstr("'target.model': no file at"), HasSubstr("--set target.model=FILE")),
                          AllOf(HasSubstr(path + ":"), HasSubstr("; get it with `foresay pull "))));
    }
    EXPECT_GT(files, 0);
}

}  // namespace
}  // namespace foresay::testing
