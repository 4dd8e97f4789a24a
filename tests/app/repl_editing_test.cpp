// Editing in the conversation loop, in a real terminal.
#include <gmock/gmock.h>

#include <regex>
#include <vector>

#include "tests/app/program.h"
#include "tests/app/tmux_terminal.h"

namespace foresay::testing {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

class ReplEditing : public TmuxTerminal {};

std::string lines(int count) {
    std::string text;
    for (int i = 0; i < count; ++i) text += "line_" + std::to_string(i) + " = " + std::to_string(i * i) + "\n";
    return text;
}

TEST_F(ReplEditing, TabCompletesCommandsKeysValuesAndFiles) {
    start("");
    wait_for("\n>");
    type("/und Tab");
    expect_screen(HasSubstr("> /undo"));
    type("C-u /st Tab");
    expect_screen(HasSubstr("> /stats"));
    type("C-u /s Tab");
    expect_screen(AllOf(HasSubstr("set "), HasSubstr("stats")));
    type("C-u '/set sampling.temp' Tab 'v' Tab '0.25' Enter");
    expect_screen(HasSubstr("sampling.temperature.value = 0.25"));
    type("'/set speculation.mode o' Tab Enter");
    expect_screen(HasSubstr("speculation.mode = \"off\""));
    type("'/help retr' Tab Enter");
    expect_screen(HasSubstr("/retry [SEED]"));
}

TEST_F(ReplEditing, TabIndentsText) {
    start("");
    wait_for("\n>");
    type("'ab' Tab 'c'");
    expect_screen(HasSubstr("> ab  c"));
}

TEST_F(ReplEditing, LongPasteIsOneEntry) {
    start("-n 2");
    wait_for("\n>");
    paste(lines(200));
    expect_screen(AllOf(HasSubstr("> [line_0 = 0 ... 200 lines]"), Not(HasSubstr("context "))));
    type("'# end' Enter");
    wait_for_answers(1);
    expect_screen(HasSubstr("output 2"));
    type("/stats Enter");
    expect_screen(HasSubstr("answers   1,"));
    // The same text through a pipe takes as many positions.
    const Outcome piped = run({"chat", "--lines", "-n", "2"}, "\"\"\"\n" + lines(200) + "# end\n\"\"\"\n/stats\n");
    const auto context = piped.error.find("context");
    ASSERT_NE(context, std::string::npos) << piped.error;
    EXPECT_THAT(screen(), HasSubstr(piped.error.substr(context, piped.error.find('\n', context) - context)));
}

TEST_F(ReplEditing, ShortPasteIsShownAndIsTextWhateverItBeginsWith) {
    start("-n 2");
    wait_for("\n>");
    paste("// no command\nint main() {\n}");
    expect_screen(HasSubstr("> // no command\nint main() {\n}"));
    type("Enter");
    wait_for_answers(1);
    expect_screen(Not(HasSubstr("unknown command")));
    // It comes back from the history as text.
    type("Up");
    expect_screen(HasSubstr("> \"\"\"\"\n// no command\nint main() {\n}\n\"\"\"\""));
    type("Enter");
    wait_for_answers(2);
    EXPECT_THAT(screen(), Not(HasSubstr("unknown command")));
}

TEST_F(ReplEditing, SeveralLinesByKeysAndQuotes) {
    start("-n 2");
    wait_for("\n>");
    type("'a = 1 + \\' Enter");  // a backslash is Python's
    wait_for_answers(1);
    type("'b = 2' C-j 'c = 3' Enter");
    wait_for_answers(2);
    expect_screen(HasSubstr("> b = 2\nc = 3\n"));
    type("'\"\"\"' Enter '/retry' Enter 'd = 4' Enter '\"\"\"' Enter");
    wait_for_answers(3);
    expect_screen(HasSubstr("> \"\"\"\n. /retry\n. d = 4\n. \"\"\"\n"));
    type("'e = 5' M-Enter 'f = 6' Enter");
    wait_for_answers(4);
    expect_screen(HasSubstr("> e = 5\nf = 6\n"));
    type("'\"\"\"Doc.' C-j '\"\"\"' Enter");
    wait_for_answers(5);
    type("C-l /history Enter");
    expect_screen(AllOf(HasSubstr("1    > a = 1 + \\"), HasSubstr("2    > b = 2 c = 3 "),
                        HasSubstr("3    > /retry d = 4 "), HasSubstr("4    > e = 5 f = 6 "),
                        HasSubstr("5    > \"\"\"Doc. \"\"\" ")));
    // Each comes back whole, and arrows move inside before they move on.
    type("C-l Up Up Up Up");
    expect_screen(ContainsRegex("> e = 5\nf = 6"));
    type("C-u Up Up Up");
    expect_screen(ContainsRegex("> \"\"\"\"\n/retry\nd = 4\n\"\"\"\""));
}

TEST_F(ReplEditing, TabCompletesThePlaceOfAHole) {
    const std::string file = write_scratch("place/util.py", "def add(a, b):\n\n    return total\n");
    start("-n 2");
    wait_for("\n>");
    type("'/fim " + file.substr(0, file.size() - 4) + "' Tab");
    expect_screen(HasSubstr("> /fim " + file + ":"));
    type("Tab Tab 2 Enter");
    wait_for_answers(1);
    EXPECT_THAT(screen(), HasSubstr("> /fim " + file + ":2\n"));
}

TEST_F(ReplEditing, CharactersOfSeveralCodePointsAreOne) {
    const std::string family = "\U0001F468\u200D\U0001F469\u200D\U0001F467";
    start("-n 2");
    wait_for("\n>");
    type("'ab" + family + "' BSpace 'c'");
    expect_screen(HasSubstr("\n> abc\n"));
    type("C-u 'x" + family + "y' Left Left BSpace 'z' Right BSpace Enter");
    wait_for_answers(1);
    expect_screen(HasSubstr("\n> zy\n"));
    type("'k = \"" + family + "\"' Enter");
    wait_for_answers(2);
    type("C-l /print Space --tokens Enter");
    // All of its bytes reach the model.
    expect_screen(HasSubstr("\"zy"));
    type("/history Enter");
    expect_screen(HasSubstr("> k = "));
}

TEST_F(ReplEditing, BytesThatAreNoCharacterTakeNothingElseWithThem) {
    start("-n 2");
    wait_for("\n>");
    type_bytes("a\xe2z \xc0\xaf\xf0\x9f\u00e4 \xffn");
    expect_screen(HasSubstr("\n> az \u00e4 n\n"));
}

// A Ctrl-D that is typed while the model loads arrives as a zero byte, as Ctrl-Space does.
TEST_F(ReplEditing, AZeroByteQuotesNothing) {
    start("");
    wait_for("\n>");
    type("C-Space");
    type("'one' C-Space BSpace 'x'");
    expect_screen(HasSubstr("> onx"));
    type("C-u C-Space C-d");
    expect_screen(HasSubstr("status 0"));
}

TEST_F(ReplEditing, ReverseSearchFindsAnEntry) {
    start("-n 2");
    wait_for("\n>");
    type("'needle = 1' Enter");
    wait_for_answers(1);
    type("'hay = 2' Enter");
    wait_for_answers(2);
    type("C-r need");
    expect_screen(HasSubstr("search 'need': needle = 1"));
    type("Enter");
    wait_for_answers(3);
    EXPECT_THAT(screen(), AllOf(ContainsRegex("> needle = 1(.|\n)*> needle = 1"), Not(HasSubstr("search"))));
    // What was typed comes back, and an arrow key leaves the search with the entry that was found.
    type("'typed' C-r hayx");
    expect_screen(HasSubstr("no older entry with 'hayx': hay = 2"));
    type("C-g");
    expect_screen(HasSubstr("> typed"));
    type("C-u C-r hay Left Left 1 Enter");
    wait_for_answers(4);
    EXPECT_THAT(screen(), HasSubstr("> hay =1 2"));
}

TEST_F(ReplEditing, ReverseSearchSeesAllOfLongEntries) {
    start("-n 2");
    wait_for("\n>");
    paste(lines(40));
    expect_screen(HasSubstr("> [line_0 = 0 ... 40 lines]"));
    type("Enter");
    wait_for_answers(1);
    type("C-r 'line_30 = 900'");
    expect_screen(HasSubstr("search 'line_30 = 900': [line_0 = 0 ... 40 lines]"));
    type("Enter");
    wait_for_answers(2);
    // The whole text was sent again: at least as many tokens went in (the line break before it may be one more).
    const std::string shown = screen();
    const std::regex input("input ([0-9]+) ");
    const std::vector<std::sregex_iterator::value_type> found(std::sregex_iterator(shown.begin(), shown.end(), input),
                                                              std::sregex_iterator());
    ASSERT_EQ(found.size(), 2u) << shown;
    EXPECT_GE(std::stoi(found[1][1].str()), std::stoi(found[0][1].str()));
}

TEST_F(ReplEditing, ExternalEditorChangesTheEntry) {
    const std::string editor =
        write_scratch("editor", "#!/bin/sh\nsed -i s/cat/dog/ \"$1\"\nprintf 'y = 2\\n' >>\"$1\"\n");
    shell("chmod +x " + editor);
    start("-n 2", "EDITOR=" + editor + " VISUAL=");
    wait_for("\n>");
    type("'x = cat' C-x C-e");
    expect_screen(HasSubstr("> x = dog"));
    type("Enter");
    wait_for_answers(1);
    type("'/editor cat' Enter");
    expect_screen(HasSubstr("\n> dogy = 2"));
    type("C-c");
    expect_screen(HasSubstr("Press Ctrl-C again to quit"));
    type("'/help' Enter");
    expect_screen(HasSubstr("Ctrl-R"));
}

TEST_F(ReplEditing, EditorThatFailsIsOneSentence) {
    start("-n 2", "EDITOR=false VISUAL=");
    wait_for("\n>");
    type("'/editor x' Enter");
    expect_screen(HasSubstr("foresay: the editor 'false' failed; set VISUAL or EDITOR"));
}

}  // namespace
}  // namespace foresay::testing
