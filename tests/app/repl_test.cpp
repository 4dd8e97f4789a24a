// The conversation loop in a real terminal: starting, asking, stopping, leaving.
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "tests/app/program.h"
#include "tests/app/tmux_terminal.h"

namespace foresay::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::Truly;

class Repl : public TmuxTerminal {};

// No end of text comes soon, so that there is something to stop.
const std::string kEndless = "-n 0 --speculation off --set plugin=[] --set sampling.chain=[] --set sampling.seed=3";

TEST_F(Repl, AnswersRetriesAndLeaves) {
    start("-n 12");
    expect_screen(HasSubstr("/help lists the commands"));
    type("'def fib(n):' Enter");
    wait_for_answers(1);
    expect_screen(HasSubstr("output "));
    type("/retyr Enter");
    expect_screen(HasSubstr("unknown command /retyr; did you mean /retry?"));
    type("/retry Enter");
    type("/stats Enter");
    expect_screen(AllOf(HasSubstr("answers   2"), HasSubstr("first     token after ")));
    type("/quit Enter");
    expect_screen(HasSubstr("status 0"));
}

TEST_F(Repl, HistoryIsPrivateAndKeepsEntriesWhole) {
    start("-n 2");
    wait_for("\n>");
    type("'first' C-j 'second' Enter");
    wait_for_answers(1);
    type("' not kept' Enter");
    wait_for_answers(2);
    type("/quit Enter");
    expect_screen(HasSubstr("status 0"));
    struct stat history {};
    ASSERT_EQ(::stat((std::filesystem::path(state()) / "foresay" / "history").c_str(), &history), 0);
    EXPECT_EQ(history.st_mode & 0777, 0600u);
    start("-n 2");
    wait_for("\n>");
    type("Up Up");
    expect_screen(AllOf(HasSubstr("> first\nsecond"), Not(HasSubstr("not kept"))));
}

TEST_F(Repl, InterruptKeepsThePartialAnswer) {
    start(kEndless);
    wait_for("\n>");
    type("'import os' Enter");
    // Part of the answer follows the entry.
    expect_screen(Truly([](const std::string& shown) {
        const auto entry = shown.find("> import os");
        return entry != std::string::npos && shown.find_first_not_of(" \n", entry + 11) != std::string::npos;
    }));
    type("C-c");
    expect_screen(HasSubstr("cancelled"));
    type("/stats Enter");
    expect_screen(AllOf(HasSubstr("answers   1"), Not(HasSubstr("answers   1, 0 tokens"))));
    type("C-c");
    expect_screen(HasSubstr("Press Ctrl-C again to quit"));
    type("C-c");
    expect_screen(HasSubstr("status 130"));
}

TEST_F(Repl, InterruptOfSeveralAnswersIsOneLineAndLeavesNoEmptyBranches) {
    start(kEndless);
    wait_for("\n>");
    type("'/n 16 import os' Enter");
    expect_screen(Truly([](const std::string& shown) {
        const auto entry = shown.find("> /n 16 import os");
        return entry != std::string::npos && shown.find_first_not_of(" \n", entry + 17) != std::string::npos;
    }));
    type("C-c");
    expect_screen(AllOf(HasSubstr("Cancelled; "),
                        HasSubstr(" of 16 answers had begun and are kept; /branch lists them."),
                        Not(HasSubstr("context ")), Not(HasSubstr("-- /branch"))));
    type("C-l /branch Enter");
    expect_screen(AllOf(HasSubstr("* 0   1 answer"), Not(HasSubstr("empty"))));
}

TEST_F(Repl, InterruptWhileThePromptIsReadKeepsWhatWasRead) {
#ifdef FORESAY_SANITIZED
    const int lines = 60;
#else
    const int lines = 250;
#endif
    std::string text;
    for (int i = 0; i < lines; ++i) text += "x" + std::to_string(i) + " = 1\n";
    start("-n 4 --device reference");
    wait_for("\n>");
    paste(text);
    wait_for(std::to_string(lines) + " lines");
    type("Enter");
    std::this_thread::sleep_for(std::chrono::seconds(2));  // of the minute that the reference takes
    type("C-c");
    expect_screen(AllOf(HasSubstr("cancelled"), HasSubstr("output 0")));
    wait_for("\n>", 2);  // Enter that is typed before would be a line of the entry
    // The text is in the conversation.
    type("/show Space model Enter");
    expect_screen(AllOf(HasSubstr("positions"), Not(HasSubstr("context  0 of"))));
    type("/quit Enter");
    expect_screen(HasSubstr("status 0"));
}

TEST_F(Repl, KeysTypedDuringAnAnswerAreShownAndKept) {
    start(kEndless);
    wait_for("\n>");
    type("'import os' Enter");
    wait_for("import");
    type("'typed ahead' BSpace BSpace 'AD' Enter more");
    expect_screen(HasSubstr("> typed aheAD\u23ce more"));
    type("C-c");
    wait_for("cancelled");
    // What was meant as an entry is held back by Ctrl-C: it stands there as text of two lines.
    expect_screen(AllOf(HasSubstr("> typed aheAD\nmore"), Not(HasSubstr("\u23ce"))));
}

TEST_F(Repl, AnEntryTypedDuringAnAnswerIsAnsweredNext) {
    start("-n 60 --speculation off");
    wait_for("\n>");
    type("'def f(x):' Enter /stats Enter");
    expect_screen(HasSubstr("answers   1"));
}

TEST_F(Repl, EndOfInputLeaves) {
    start("");
    wait_for("\n>");
    type("C-d");
    expect_screen(HasSubstr("status 0"));
}

TEST_F(Repl, TheTerminalIsGivenBack) {
    // A shell without line editing of its own shows what terminal modes the program left.
    start("; stty -a | tr \";\" \"\\n\" | grep -wE \"icanon|echo\" | head -3; exec cat");
    wait_for("\n>");
    type("C-d");
    expect_screen(AllOf(HasSubstr("icanon"), Not(HasSubstr("-icanon")), Not(HasSubstr("-echo "))));
    paste("two\nlines\n");
    expect_screen(AllOf(HasSubstr("lines"), Not(HasSubstr("200~"))));  // pastes are no longer bracketed
}

}  // namespace
}  // namespace foresay::testing
