// What is written is what the model reads: entries, the joints between entries and answers, piped input, and how a
// conversation is printed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <regex>
#include <sstream>

#include "tests/app/program.h"

namespace foresay::testing {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kBegin = "<|begin_of_text|>";

// What /print says after `input`, without the name of the first token and without the line of counts.
std::string printed(const std::string& input, std::vector<std::string> more = {}) {
    const std::string error = chat(input + "/print\n", std::move(more)).error;
    const auto begin = error.find(kBegin);
    if (begin == std::string::npos) return error;
    std::smatch count;
    std::string text = error.substr(begin + std::string(kBegin).size());
    if (std::regex_search(text, count, std::regex("\n[0-9]+ tokens?[^\n]*\\.\n$")))
        text.resize(text.size() - count.length());
    return text;
}

std::string without_blank_lines(const std::string& text) { return std::regex_replace(text, std::regex("\n+"), "\n"); }

TEST(Entries, AreLinesOfTheDocumentAlsoAfterALineThatWasCut) {
    const std::string first = complete("def area(r):\n", {"-n", "5"});
    ASSERT_THAT(first, Not(EndsWith("\n"))) << "the limit must cut a line, or this tests nothing";
    const Outcome outcome = chat("def area(r):\ndef volume(r):\n", {"-n", "5", "--session", "lines"});
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    const std::string second = outcome.out.substr(first.size() + 1, outcome.out.size() - first.size() - 2);
    EXPECT_EQ(outcome.out, first + "\n" + second + "\n");
    // The model, the file and the screen agree.
    const std::string document = "def area(r):\n" + first + "\ndef volume(r):\n" + second;
    EXPECT_EQ(printed("def area(r):\ndef volume(r):\n", {"-n", "5"}), document);
    EXPECT_EQ(run({"session", "show", "lines"}).out,
              "> def area(r):\n" + first + "\n> def volume(r):\n" + second + "\n");
    EXPECT_EQ(run({"session", "replay", "lines"}).status, 0);
}

TEST(Entries, AreAddedAsTheyAreOnDemandAndTheJointsAreSeen) {
    const std::vector<std::string> verbatim = {"-n", "5", "--set", "chat.newline=false"};
    const std::string first = complete("def area(", {"-n", "5"});
    ASSERT_THAT(first, Not(EndsWith("\n")));
    const std::string document = printed("def area(\nx = 1\n", verbatim);
    EXPECT_THAT(document, StartsWith("def area(" + first + "x = 1"));
    std::vector<std::string> saved = verbatim;
    saved.insert(saved.end(), {"--session", "joints"});
    chat("def area(\nx = 1\n", saved);
    EXPECT_THAT(run({"session", "show", "joints"}).out,
                StartsWith("> def area(\n\u2026" + first + "\n> \u2026x = 1\n"));
}

TEST(Entries, MayBeAnyPython) {
    EXPECT_THAT(printed("\"\"\"Utilities for CSV files.\"\"\"\n"),
                StartsWith("\"\"\"Utilities for CSV files.\"\"\"\n"));
    EXPECT_THAT(printed("total = 1 + \\\n"), StartsWith("total = 1 + \\\n"));
    EXPECT_THAT(printed("x = \"\"\"\n"), StartsWith("x = \"\"\"\n"));
    // Quotes alone on their lines enclose several lines; an empty last line is a line.
    EXPECT_THAT(printed("\"\"\"\nimport os\n\n\"\"\"\n"), StartsWith("import os\n\n"));
    EXPECT_THAT(printed("\"\"\"\ndef f():\n    \"\"\"\n    Doc.\n    \"\"\"\n\"\"\"\n"),
                StartsWith("def f():\n    \"\"\"\n    Doc.\n    \"\"\"\n"));
    // More quotes enclose a docstring of several lines.
    EXPECT_THAT(printed("\"\"\"\"\n\"\"\"\nUtilities.\n\"\"\"\nimport os\n\"\"\"\"\n"),
                StartsWith("\"\"\"\nUtilities.\n\"\"\"\nimport os\n"));
}

TEST(Entries, HolesTakeDocstringsToo) {
    const Outcome outcome = chat("/fim \"\"\"\"\n\"\"\"\nUtilities.\n\"\"\"\ndef f():\n    <FILL>\n\"\"\"\"\n/print\n",
                                 {"--session", "hole"});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_THAT(outcome.error, HasSubstr("\"\"\"\nUtilities.\n\"\"\"\ndef f():\n    "));
    EXPECT_THAT(run({"session", "show", "hole"}).out,
                StartsWith("> \"\"\"\n. Utilities.\n. \"\"\"\n. def f():\n.     <FILL>\n"));
}

TEST(Print, ShowsEveryTokenThatTheModelReads) {
    const Outcome outcome = chat("def f(x):\n/print --tokens\n", {"-n", "3"});
    const std::string ids =
        run({"tokenize", "--model", source("models/python-coder/target-q4_k_m.gguf")}, "def f(x):\n").out;
    // The tokens of the entry, then the three of the answer.
    std::istringstream wanted(ids), lines(outcome.error);
    std::string id, line;
    std::size_t position = 0;
    for (; wanted >> id; ++position) {
        ASSERT_TRUE(std::getline(lines, line));
        EXPECT_THAT(line, MatchesRegex(std::to_string(position) + " +" + id + " +\".*\"( +special)?"));
        EXPECT_EQ(line.find("special") != std::string::npos, position == 0) << line;
    }
    EXPECT_GT(position, 2u);
    for (int i = 0; i < 3; ++i) std::getline(lines, line);
    std::getline(lines, line);
    EXPECT_EQ(line, std::to_string(position + 3) + " tokens.");
    EXPECT_THAT(chat("/print\n").error, HasSubstr("the conversation is empty"));
    EXPECT_THAT(chat("def f(x):\n/print all\n").error, HasSubstr("write /print or /print --tokens"));
}

TEST(Print, SaysWhetherTheLastLineIsFinished) {
    EXPECT_THAT(chat("def area(r):\n/print\n", {"-n", "5"}).error, HasSubstr("the last line is not finished"));
    EXPECT_THAT(chat("/edit x\n").error, HasSubstr("there is no answer to edit"));
}

TEST(Piped, InputIsOnePrompt) {
    const std::string text = "# a file\n/retry\n\n\"\"\"Doc.\"\"\"\ndef f(x):\n";
    const Outcome outcome = run({"chat", "-n", "10"}, text);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(outcome.out, complete(text) + "\n");
    EXPECT_EQ(outcome.error, "");
    // Its last newline may be missing, and is its own where it is not.
    EXPECT_EQ(run({"chat", "-n", "10"}, "def f(x):").out, complete("def f(x):\n") + "\n");
    EXPECT_EQ(run({"chat", "-n", "10"}, "def f(x):\n\n").out, complete("def f(x):\n\n") + "\n");
    EXPECT_EQ(run({"chat"}, "").out, "");
    EXPECT_EQ(run({"chat"}, "").status, 0);
}

TEST(Piped, CommandsNeedTheOptionForLines) {
    const Outcome outcome = run({"chat", "-n", "4"}, "/stats\n");
    EXPECT_THAT(outcome.error, HasSubstr("foresay: piped input is one prompt, so /stats is part of it and no command; "
                                         "--lines reads entries and commands line by line"));
    EXPECT_EQ(outcome.out, complete("/stats\n", {"-n", "4"}) + "\n");
    EXPECT_THAT(run({"chat", "-n", "4"}, "/usr/bin/env python\n").error, Not(HasSubstr("--lines")));
    std::string longer;
    for (int i = 0; i < 600; ++i) longer += "word" + std::to_string(i) + " ";
    const Outcome failed = run({"chat", "--context", "64"}, longer);
    EXPECT_EQ(failed.status, 1);
    EXPECT_THAT(failed.error, AllOf(StartsWith("foresay: the entry has at least "), HasSubstr("but the context has 64"),
                                    HasSubstr("target.context")));
}

TEST(Sessions, ASavedPromptGoesOn) {
    run({"chat", "-n", "5", "--session", "piped"}, "import os\n");
    const Outcome next = run({"chat", "-n", "5", "--session", "piped"}, "import re\n");
    EXPECT_EQ(next.status, 0) << next.error;
    EXPECT_THAT(run({"session", "show", "piped"}).out,
                AllOf(StartsWith("> import os\n"), HasSubstr("\n> import re\n")));
}

TEST(More, GoesOnAsALongerLimitWould) {
    const Outcome outcome = chat("def fib(n):\n/more 7\n/more\n/retry 0\n/print\n", {"-n", "3", "--seed", "2"});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    const std::string whole = complete("def fib(n):\n", {"-n", "13", "--seed", "2"});
    const std::string begun = complete("def fib(n):\n", {"-n", "3", "--seed", "2"});
    const std::string longer = complete("def fib(n):\n", {"-n", "10", "--seed", "2"});
    const std::string last = whole.substr(longer.size());
    EXPECT_THAT(outcome.out, StartsWith(begun + "\n" + longer.substr(begun.size()) + "\n" + last + "\n"));
    EXPECT_THAT(chat("/more\n").error, HasSubstr("there is no answer to continue"));
    EXPECT_THAT(chat("x\n/more 0\n").error, HasSubstr("the number of tokens must be a number from 1"));
}

TEST(Retry, AnswersTheEntryThatFailed) {
    // A sampler that throws.
    const std::string plugin = std::string(FORESAY_BAD_FOLDER) + "/bad_throws.so";
    const Outcome outcome =
        chat("x = 1\n/plugin load " + plugin + "\nimport os\n/plugin unload bad_throws\n/retry\n/print\n", {"-n", "4"});
    EXPECT_EQ(outcome.status, 1) << "one entry failed";
    EXPECT_THAT(outcome.error, HasSubstr("bad_throws"));
    const Outcome straight = chat("x = 1\nimport os\n/print\n", {"-n", "4"});
    EXPECT_THAT(outcome.error, EndsWith(straight.error));
    EXPECT_EQ(without_blank_lines(outcome.out), without_blank_lines(straight.out));
    // An entry that is too long, several answers, a seed; what changes the conversation forgets the entry.
    std::string longer = "names = [";
    for (int i = 0; i < 40; ++i) longer += "'n" + std::to_string(i) + "', ";
    longer += "'end',";
    const Outcome fits =
        chat("/set context 60\nx = 1\n/n 2 " + longer + "\n/set context 1000\n/retry 5\n/retry\n/undo\n/undo\n/retry\n",
             {"-n", "4"});
    const Outcome same = chat("x = 1\n/set seed 5\n" + longer + "\n/retry\n/undo\n/undo\n/retry\n", {"-n", "4"});
    EXPECT_EQ(fits.out, same.out) << fits.error;
    EXPECT_THAT(chat("/set context 60\nx = 1\n" + longer + "\n/clear\n/retry\n", {"-n", "4"}).error,
                HasSubstr("there is no answer to retry"));
}

TEST(Messages, HaveOneVoice) {
    const Outcome outcome = chat(
        "x = 1\n/set sampling.sed 5\n/set sampling.seed -1\n/set sampling.seed 18446744073709551615\n/set device "
        "foo\n/nonsense\n"
        "/plugin load no_such\n/retry 18446744073709551615\n/branch 7\n/save my first\n/fim " +
        write_scratch("util.py", "one\n\u00e4b\n") + ":2:4\n");
    EXPECT_EQ(outcome.status, 1);
    std::istringstream lines(outcome.error);
    for (std::string line; std::getline(lines, line);) {
        EXPECT_THAT(line, ::testing::AnyOf(StartsWith("foresay: "), StartsWith("    "))) << outcome.error;
        for (const std::string command : {"/set", "/plugin", "/retry"})
            EXPECT_THAT(line, Not(HasSubstr(command + ":")));
    }
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("foresay: unknown key 'sed' in [sampling]; did you mean 'seed'?\n"),
                      // The caret is below the value.
                      HasSubstr("foresay: 'sampling.seed' must be 0 or more, not -1\n    sampling.seed = -1\n"
                                "                    ^\n"),
                      HasSubstr("'sampling.seed' must be between 0 and 9223372036854775807, not 18446744073709551615"),
                      HasSubstr("    runtime.device = \"foo\"\n                     ^\n"),
                      HasSubstr("the seed must be a whole number from 0 to 9223372036854775807"),
                      HasSubstr("a session's name has no blanks; write /save my-first"),
                      HasSubstr("util.py:2 has no column 4; its columns go from 1 to 3")));
}

TEST(Set, TakesTheEndOfAKey) {
    const Outcome outcome = chat(
        "/set seed 3\n/set device cpu\n/set temperature 0.25\n/set top_k.k=7\n/set model x\n/set on_error skip\n/set "
        "sed 3\n/show seed\n"
        "/set plugin.wordlist.options.forbid [\"a=b\"]\n/set seed\n");
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("sampling.seed = 3\n"), HasSubstr("runtime.device = \"cpu\"\n"),
                      HasSubstr("sampling.temperature.value = 0.25\n"), HasSubstr("sampling.top_k.k = 7\n"),
                      HasSubstr("'model' could be target.model, draft.model; write one of them"),
                      HasSubstr("'on_error' could be "), HasSubstr("unknown key 'sed'"),
                      HasSubstr("plugin.wordlist.options.forbid = [\"a=b\"]\n"), HasSubstr("write /set KEY VALUE")));
}

TEST(Set, RefusesAContextThatTheConversationHasOutgrown) {
    const Outcome outcome =
        chat("def f(x):\n/set target.context 10\n/clear\n/set target.context 10\nprint(1, 2, 3, 4, 5, 6, 7)\n");
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("positions, so target.context must be larger than that, not 10; /clear"),
                                     HasSubstr("target.context = 10\n"), HasSubstr("foresay: this text needs "),
                                     HasSubstr("/set target.context N")));
}

TEST(Draft, ComesBackAfterNone) {
    const std::string draft = source("models/python-coder/draft-q8_0.gguf");
    const Outcome outcome = chat("/draft none\n/draft on\n/draft none\n/set seed 3\n/draft on\n");
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    std::istringstream lines(outcome.error);
    std::vector<std::string> models;
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("draft model ")) models.push_back(line.substr(12));
    }
    EXPECT_EQ(models, (std::vector<std::string>{"none", draft, "none", draft}));
    // Also in a session that was saved without it.
    chat("import os\n/draft none\n/retry\n", {"--session", "undrafted"});
    EXPECT_THAT(chat("/draft\n/draft on\n", {"--session", "undrafted"}).error,
                AllOf(HasSubstr("draft model none\n"), HasSubstr("draft model " + draft + "\n")));
    const std::string target = source("models/python-coder/draft-q8_0.gguf");
    EXPECT_THAT(chat("/draft on\n", {"--model", target}).error,
                HasSubstr("foresay: no draft model was found for this target; /draft PATH loads one"));
}

TEST(Places, AreShownWhereOneGoes) {
    const Outcome outcome =
        chat("import os\nimport sys\n/branch new 1\n/branch 0\n/undo\n/save here\n/load here\n", {"-n", "4"});
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    const std::string first = complete("import os\n", {"-n", "4"});
    const auto after = [&](const std::string& part) {
        const auto at = outcome.error.find(part);
        return at == std::string::npos ? outcome.error : outcome.error.substr(at);
    };
    EXPECT_THAT(after("* 1   1 answer"), HasSubstr("> import os\n" + first));
    EXPECT_THAT(after("* 0   2 answers"), HasSubstr("> import sys\n"));
    EXPECT_THAT(after("Back to the state after 1 answer."), HasSubstr("> import os\n" + first));
    EXPECT_THAT(after("Continuing here: "), HasSubstr("> import os\n" + first));
    EXPECT_THAT(chat("import os\nimport sys\n/history\n/history 1\n").error,
                AllOf(HasSubstr("1    > import os "), HasSubstr("2    > import sys ")));
    EXPECT_THAT(chat("import os\nimport sys\n/history 1\n").error, Not(HasSubstr("> import os")));
}

}  // namespace
}  // namespace foresay::testing
