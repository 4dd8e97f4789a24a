// What the conversation loop shows on terminals of several kinds.
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>

#include "tests/app/program.h"
#include "tests/app/tmux_terminal.h"

namespace foresay::testing {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
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
std::string expected(const std::string& tokens, const std::string& device = "auto") {
    return without_blanks(kPrompt + run({"complete", "-p", kPrompt + "\n", "-n", tokens, "--device", device}).out);
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
    // What is shown has been given to the thread that reads ahead.
    type("'def fib(m'");
    wait_for("> def fib(m");
    type("BSpace 'n):'");
    wait_for("> def fib(n):");
    type("Enter");
    wait_for_answers(1);
    type("'    # something else'");
    wait_for(">     # something else");
    type("C-u '    # one more'");
    wait_for(">     # one more");
    type("BSpace BSpace BSpace BSpace 'again' Enter");
    wait_for_answers(2);
    type("/retry Enter");
    wait_for_answers(3);
    const Outcome piped = run({"chat", "--lines", "-n", "40"}, kPrompt + "\n    # one again\n/retry\n");
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

// At the bottom of the screen, where a prompt usually is: tmux moves the lines above a narrower text into its history,
// which a program cannot change.
TEST_F(ReplDisplay, AResizedEntryIsThereOnce) {
    start("-n 2", "", 100, 15);
    wait_for("\n>");
    type("/help Enter");
    wait_for("unambiguous prefix.\n>");
    std::string words;
    for (int i = 0; i < 11; ++i) words += "word" + std::to_string(i) + "_x ";
    type("'first line of it' C-j '" + words + "END'");
    wait_for("END");
    const auto once = ::testing::Truly([](const std::string& shown) {
        const std::string text = without_blanks(shown);
        const auto at = text.find("firstlineofit");
        return at != std::string::npos && text.find("firstlineofit", at + 1) == std::string::npos &&
               text.find("word0_x") == text.rfind("word0_x") && text.ends_with("word10_xEND");
    });
    for (const int columns : {31, 100, 47, 20, 33, 100}) {
        resize(columns, 15);
        type("' '");
        expect_screen(once);
    }
    EXPECT_THAT(screen_and_past(), once);
    type("Enter");
    wait_for_answers(1);
    type("/print Enter");
    expect_screen(HasSubstr("first line of it\n" + words + "END\n"));
}

TEST_F(ReplDisplay, JointsAreSeenWhereEntriesAreAddedAsTheyAre) {
    start("-n 5 --set chat.newline=false");
    wait_for("\n>");
    type("'x = (1 +' Enter");
    wait_for("context ");
    // The answer continues the line of the entry, and the next entry that of the answer.
    const std::string answer = run({"complete", "-p", "x = (1 +", "-n", "5"}).out;
    ASSERT_EQ(answer.find('\n'), std::string::npos) << answer;
    expect_screen(AllOf(HasSubstr("\nx = (1 +" + answer + "\n"), HasSubstr("\nx = (1 +" + answer + ">")));
    type("' * 2' Enter");
    wait_for("context ", 2);
    type("/print Enter");
    expect_screen(HasSubstr("x = (1 +" + answer + " * 2"));
}

TEST_F(ReplDisplay, MoreShowsTheLineThatItContinues) {
    start("-n 5");
    wait_for("\n>");
    type("'def area(r):' Enter");
    wait_for_answers(1);
    type("/more Enter");
    wait_for_answers(2);
    const std::string begun = run({"complete", "-p", "def area(r):\n", "-n", "5"}).out;
    const std::string whole = run({"complete", "-p", "def area(r):\n", "-n", "10"}).out;
    const std::size_t line = begun.find_last_of('\n') + 1;
    EXPECT_THAT(without_blanks(screen()), HasSubstr(without_blanks("> /more" + whole.substr(line))));
}

TEST_F(ReplDisplay, CodeIsColouredAsItComes) {
    // On the CPU, whose answers have `return` and the end of the string where they can be seen.
    start("-n 200 --speculation 4 --device cpu", "", 61, 60);
    wait_for("\n>");
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    EXPECT_THAT(colours(), HasSubstr("\x1b[35mreturn\x1b[39m"));
    EXPECT_THAT(without_blanks(screen_and_past()), HasSubstr(expected("200", "cpu")));
    // The answer goes on in the string that the entry begins. It is short, so that the entry stays on the screen.
    start("-n 40 --speculation 4 --device cpu", "", 61, 60);
    wait_for("\n>");
    type("'x = \"\"\"two words' Enter");
    wait_for_answers(1);
    EXPECT_THAT(colours(), HasSubstr("words\n\x1b[32m"));
}

TEST_F(ReplDisplay, MarkedTokensTakeThePlaceOfTheColours) {
    start("-n 60 --speculation 4");
    wait_for("\n>");
    type("/view Space on Enter");
    expect_screen(HasSubstr("Drafted tokens are marked"));
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    EXPECT_THAT(colours(), AllOf(HasSubstr("\x1b[32m"), Not(HasSubstr("\x1b[35m"))));
}

TEST_F(ReplDisplay, SaysOnceWhatTheModelCanDo) {
    start("-n 4");
    expect_screen(ContainsRegex("does not converse(.|\n)*\n>"));
    start("-n 4");
    expect_screen(ContainsRegex("/help lists the commands(.|\n)*\n>"));
    EXPECT_THAT(screen(), Not(HasSubstr("does not converse")));
    start("-n 4 --set chat.about=Another_text");
    expect_screen(HasSubstr("Another_text"));
}

TEST_F(ReplDisplay, LongTextGoesThroughThePager) {
    const std::string script = write_scratch("pager", "#!/bin/sh\nsed s/^/PAGED:/\n");
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    const std::string pager = "PAGER=" + script;
    start("-n 4", pager, 100, 20);
    wait_for("\n>");
    type("/help Enter");
    expect_screen(ContainsRegex("PAGED:(.|\n)*\n>"));
    type("'/help view' Enter");
    expect_screen(HasSubstr("\n/view [on|off]"));
    for (const char* without : {"--no-pager", "--simple-io --no-pager"}) {
        start(std::string("-n 4 ") + without, pager, 100, 20);
        wait_for("\n>");
        type("/help Enter");
        expect_screen(ContainsRegex("/quit(.|\n)*\n>"));
        EXPECT_THAT(screen(), Not(HasSubstr("PAGED:")));
    }
    start("-n 4", pager, 100, 100);
    wait_for("\n>");
    type("/help Enter");
    expect_screen(ContainsRegex("/quit(.|\n)*\n>"));
    EXPECT_THAT(screen(), Not(HasSubstr("PAGED:"))) << "what fits the screen is not paged";
    start("-n 4", "PAGER=/no/such/pager", 100, 20);
    wait_for("\n>");
    type("/help Enter");
    expect_screen(ContainsRegex("/quit(.|\n)*\n>"));
}

TEST_F(ReplDisplay, DraftedTokensAreTintedOnDemand) {
    start("-n 60 --speculation 4 --set chat.language=none");
    wait_for("\n>");
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    EXPECT_THAT(colours(), Not(AnyOf(HasSubstr("\x1b[32m"), HasSubstr("\x1b[35m"))));
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
    wait_for("\n>");
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    EXPECT_THAT(colours(), Not(HasSubstr("\x1b[")));
    EXPECT_THAT(without_blanks(screen()), HasSubstr(expected("12")));
    type("'/view on' Enter");
    expect_screen(
        HasSubstr("foresay: drafted tokens cannot be marked here, because this terminal shows plain text (TERM=dumb)"));
    type("/view Enter");
    expect_screen(HasSubstr("Answers are plain text"));
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
    start("-n 12");
    wait_for("\n>");
    type("'" + kPrompt + "' Enter");
    wait_for_answers(1);
    type("C-d");
    expect_screen(HasSubstr("status 0"));
    start("--continue");
    expect_screen(
        ContainsRegex("/help lists the commands(.|\n)*Continuing .*: 1 answer(.|\n)*> def fib\\(n\\):(.|\n)*\n>"));
    EXPECT_THAT(colours(), HasSubstr("\x1b[35m")) << "the answer has its colours again";
    EXPECT_THAT(screen(), HasSubstr("> def fib(n):\n    ")) << "no line break that the document does not have";
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

TEST_F(ReplDisplay, ControlCharactersOfAnswersDoNotReachTheTerminal) {
    start("-n 2");
    wait_for("\n>");
    type("'x = 1' Enter");
    wait_for_answers(1);
    type("'/edit def f' C-v Escape '[31mb' C-v Escape '[2Jc' Enter");
    expect_screen(HasSubstr("\ndef f?[31mb?[2Jc"));
    EXPECT_THAT(colours(), Not(HasSubstr("\x1b[31m")));
}

}  // namespace
}  // namespace foresay::testing
