// What the conversation loop shows on terminals of several kinds.
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "tests/app/program.h"
#include "tests/app/tmux_terminal.h"

namespace foresay::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ReplDisplay : public TmuxTerminal {};

const std::string kPrompt = "def fib(n):";

std::string without_blanks(std::string text) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    return text;
}

// The screen shows what `complete` prints for the same prompt, whatever was typed and resized meanwhile.
std::string expected(const std::string& tokens) {
    return without_blanks(kPrompt + run({"complete", "-p", kPrompt, "-n", tokens}).out);
}

TEST_F(ReplDisplay, ShowsTheAnswerThatCompleteGives) {
    start("-n 200", "", 61, 40);
    wait_for("\n>");
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    EXPECT_THAT(without_blanks(screen_and_past()), HasSubstr(expected("200")));
}

TEST_F(ReplDisplay, TypingAheadLeavesTheAnswerWhole) {
    start("-n 300 --speculation off", "", 47, 12);
    wait_for("\n>");
    type("'" + kPrompt + "' Enter");
    for (int i = 0; i < 12; ++i) type("'word " + std::to_string(i) + " '");
    wait_for_answers(1);
    EXPECT_THAT(without_blanks(screen_and_past()), HasSubstr(expected("300")));
    expect_screen(HasSubstr("word 11"));
}

TEST_F(ReplDisplay, WhatIsReadAheadWhileTypingChangesNothing) {
    start("-n 40", "", 100, 60);
    wait_for("\n>");
    const auto pause = [] { std::this_thread::sleep_for(std::chrono::milliseconds(400)); };
    type("'def fib(m'");
    pause();
    type("BSpace 'n):'");
    pause();
    type("Enter");
    wait_for_answers(1);
    type("'    # something else'");
    pause();
    type("C-u '    # one more'");
    pause();
    type("BSpace BSpace BSpace BSpace 'again' Enter");
    wait_for_answers(2);
    type("/retry Enter");
    wait_for_answers(3);
    const Outcome piped = run({"chat", "-n", "40"}, kPrompt + "\n    # one again\n/retry\n");
    // The answers, without the lines between them.
    std::string shown = screen_and_past(), answers;
    for (std::size_t at = 0; at < shown.size();) {
        const std::size_t end = std::min(shown.find('\n', at), shown.size());
        const std::string line = shown.substr(at, end - at);
        if (!line.starts_with("> ") && !line.starts_with("context ")) answers += line;
        at = end + 1;
    }
    EXPECT_THAT(without_blanks(answers), HasSubstr(without_blanks(piped.out)));
}

TEST_F(ReplDisplay, ResizeWhileAnsweringAndWhileEditing) {
    start("-n 300 --speculation off", "", 80, 20);
    wait_for("\n>");
    type("'" + kPrompt + "' Enter ahead");
    resize(50, 15);
    resize(90, 25);
    wait_for_answers(1);
    expect_screen(HasSubstr("> ahead"));
    resize(40, 15);
    type("' and more'");
    expect_screen(HasSubstr("> ahead and more"));
    resize(120, 30);
    type("C-u /stats Enter");
    expect_screen(HasSubstr("answers   1, 300 tokens"));
}

TEST_F(ReplDisplay, DraftedTokensAreTintedOnDemand) {
    start("-n 60 --speculation 4");
    wait_for("\n>");
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    EXPECT_THAT(colours(), Not(HasSubstr("\x1b[32m")));
    type("/view Space on Enter");
    expect_screen(HasSubstr("Drafted tokens are marked"));
    type("/retry Enter");
    wait_for_answers(2);
    EXPECT_THAT(colours(), HasSubstr("\x1b[32m"));
}

TEST_F(ReplDisplay, NoColorMeansNone) {
    start("-n 60 --speculation 4", "NO_COLOR=1");
    wait_for("\n>");
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    type("/nonsense Enter");
    wait_for("unknown command");
    EXPECT_THAT(colours(), Not(HasSubstr("\x1b[")));
}

TEST_F(ReplDisplay, DumbTerminalsGetPlainLines) {
    start("-n 12", "TERM=dumb");
    expect_screen(HasSubstr("/help lists the commands"));
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    EXPECT_THAT(colours(), Not(HasSubstr("\x1b[")));
    EXPECT_THAT(without_blanks(screen()), HasSubstr(expected("12")));
    type("C-d");
    expect_screen(HasSubstr("status 0"));
}

TEST_F(ReplDisplay, SimpleIoReadsPlainLines) {
    start("-n 12 --simple-io");
    wait_for("\n>");
    type("'/sta' Tab 'x' C-u '" + kPrompt + "' Enter");
    wait_for_answers(1);
    expect_screen(HasSubstr("> " + kPrompt));
    type("C-c");
    expect_screen(HasSubstr("Press Ctrl-C again to quit"));
}

TEST_F(ReplDisplay, ASessionThatGoesOnShowsItsEndNextToThePrompt) {
    start("-n 4");
    wait_for("\n>");
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    type("C-d");
    expect_screen(HasSubstr("status 0"));
    start("--continue");
    expect_screen(
        ContainsRegex("/help lists the commands(.|\n)*Continuing .*: 1 answer(.|\n)*> def fib\\(n\\):(.|\n)*\n>"));
}

TEST_F(ReplDisplay, NarrowTerminalsBreakBetweenWords) {
    start("-n 40", "", 40, 40);
    wait_for("\n>");
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    EXPECT_THAT(screen(), ContainsRegex("\ncontext [0-9]+/2048 · [^\n]*\n>"));
    type("/stats Enter");
    expect_screen(AllOf(HasSubstr("\nbetween   tokens p50"), HasSubstr("\n          "), HasSubstr("positions\n")));
    type("/load Space no-such-session-of-any-name Enter");
    expect_screen(ContainsRegex("foresay: there is no saved session\n"));
}

TEST_F(ReplDisplay, ControlCharactersOfFilesDoNotReachTheTerminal) {
    start("-n 2");
    wait_for("\n>");
    type("'/show a' C-v Escape '[31mb' Enter");
    expect_screen(HasSubstr("no key or table"));
    EXPECT_THAT(colours(), Not(HasSubstr("\x1b[31m")));
}

}  // namespace
}  // namespace foresay::testing
