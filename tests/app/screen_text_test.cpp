// What an answer and the line below it look like, on a small terminal that understands what ScreenText writes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <clocale>
#include <random>
#include <string>
#include <vector>

#include "app/repl/screen_text.h"
#include "app/terminal.h"

namespace foresay::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// As many lines as needed, so nothing scrolls. Folds lines after the last column as terminals do: with the next
// character.
class Terminal {
public:
    explicit Terminal(std::size_t columns) : columns_(columns) {}

    void write(const std::string& bytes) {
        for (std::size_t at = 0; at < bytes.size();) {
            if (bytes[at] == '\x1b') {
                at = escape(bytes, at);
                continue;
            }
            const char32_t c = next_character(bytes, at);
            if (c == U'\n') {  // the line discipline puts a return in front
                ++row_;
                column_ = 0;
            } else if (c == U'\r') {
                column_ = 0;
            } else if (c == U'\t') {
                column_ = std::min((column_ / 8 + 1) * 8, columns_ - 1);
            } else {
                put(c);
            }
        }
    }
    // Lines without blanks at their ends, up to the last that is not empty.
    std::vector<std::string> lines() const {
        std::vector<std::string> out;
        for (const std::u32string& row : rows_) {
            std::string line;
            for (const char32_t c : row) {
                if (c != 0) line += c < 0x80 ? std::string(1, static_cast<char>(c)) : c == U'\u23ce' ? "\u23ce" : "W";
            }
            out.push_back(line.substr(0, line.find_last_not_of(' ') + 1));
        }
        while (!out.empty() && out.back().empty()) out.pop_back();
        return out;
    }

private:
    std::u32string& row() {
        if (rows_.size() <= row_) rows_.resize(row_ + 1);
        if (rows_[row_].size() < columns_) rows_[row_].resize(columns_, U' ');
        return rows_[row_];
    }
    void put(char32_t c) {
        const std::size_t width = columns_of(c);
        if (column_ + width > columns_) {
            ++row_;
            column_ = 0;
        }
        row()[column_] = c;
        if (width == 2) row()[column_ + 1] = 0;
        column_ += width;
    }
    std::size_t escape(const std::string& bytes, std::size_t at) {
        std::size_t number = 0;
        for (at += 2; at < bytes.size(); ++at) {
            const char c = bytes[at];
            if (c >= '0' && c <= '9') number = number * 10 + static_cast<std::size_t>(c - '0');
            if (c < '@' || c > '~') continue;
            if (column_ == columns_ && c != 'm' && c != 'h' && c != 'l') --column_;  // it had not moved on yet
            if (c == 'A') --row_;
            if (c == 'C') column_ += number;
            if (c == 'K') row().replace(column_, columns_, columns_ - column_, U' ');
            if (c == 'J') {
                row().replace(column_, columns_, columns_ - column_, U' ');
                rows_.resize(row_ + 1);
            }
            return at + 1;
        }
        return at;
    }

    std::size_t columns_, row_ = 0, column_ = 0;
    std::vector<std::u32string> rows_;
};

class ScreenTextTest : public ::testing::Test {
protected:
    void SetUp() override { ASSERT_TRUE(std::setlocale(LC_CTYPE, "C.UTF-8")); }
};

TEST_F(ScreenTextTest, TheLineBelowFollowsTheAnswer) {
    ScreenText screen(10, false);
    Terminal terminal(10);
    terminal.write(screen.add("abc", false));
    terminal.write(screen.show_typed("hi"));
    EXPECT_THAT(terminal.lines(), ElementsAre("abc", "> hi"));
    terminal.write(screen.add("def\ng", false));
    EXPECT_THAT(terminal.lines(), ElementsAre("abcdef", "g", "> hi"));
    terminal.write(screen.show_typed("hide and seek"));
    EXPECT_THAT(terminal.lines(), ElementsAre("abcdef", "g", "> d seek"));
    terminal.write(screen.finish());
    EXPECT_THAT(terminal.lines(), ElementsAre("abcdef", "g"));
    EXPECT_TRUE(screen.line_open());
}

TEST_F(ScreenTextTest, NothingIsDrawnTwiceWithoutNeed) {
    ScreenText screen(20, false);
    screen.add("abc", false);
    screen.show_typed("hi");
    EXPECT_EQ(screen.add("def", false), "def");
    EXPECT_EQ(screen.show_typed("hi"), "");
    EXPECT_THAT(screen.add("\n", false), HasSubstr("hi"));
}

TEST_F(ScreenTextTest, TintedTextIsMarkedWithColoursOrWithout) {
    EXPECT_EQ(ScreenText(20, true).add("a", true), "\x1b[32ma\x1b[0m");
    EXPECT_EQ(ScreenText(20, false).add("a", true), "\x1b[4ma\x1b[0m");
    EXPECT_EQ(ScreenText(20, true).add("a", false), "a");
}

// Whatever is typed and when, the answer looks as without it, at every width.
TEST_F(ScreenTextTest, TypingLeavesTheAnswerAsItWouldBe) {
    std::mt19937 random(1);
    const std::vector<std::string> pieces = {"a",  "word ", "\n", "longer piece of text", "\n\n", "\t",
                                             "漢", "x漢字", "  ", "0123456789",           "\ny",  "é"};
    for (int round = 0; round < 2000; ++round) {
        const std::size_t columns = 4 + random() % 20;
        ScreenText with(columns, false), without(columns, false);
        Terminal shown(columns), expected(columns);
        for (int step = 0; step < 30; ++step) {
            if (random() % 3 == 0)
                shown.write(with.show_typed(random() % 3 == 0 ? "" : "typed" + std::to_string(step)));
            const std::string& piece = pieces[random() % pieces.size()];
            shown.write(with.add(piece, false));
            expected.write(without.add(piece, false));
        }
        shown.write(with.finish());
        ASSERT_EQ(shown.lines(), expected.lines()) << "round " << round << ", " << columns << " columns";
    }
}

TEST_F(ScreenTextTest, TypedKeysLookLikeWhatTheyBecome) {
    EXPECT_EQ(typed_look("abc\x7f\x7f"
                         "d"),
              "ad");
    EXPECT_EQ(typed_look("one two\x17three"), "one three");
    EXPECT_EQ(typed_look("one\rtwo\x15three"), "one\u23ce three");
    EXPECT_EQ(typed_look("a\x1b[Ab\x1b[1;5Cc\x1bOBd\x1b"), "abcd");
    EXPECT_EQ(typed_look("\x1b[200~x\ny\x1b[201~"), "x\u23ce y");
    EXPECT_EQ(typed_look("é\x7f"), "");
    EXPECT_EQ(typed_look("a\r\x7f\x7f"), "a\u23ce ");
}

TEST_F(ScreenTextTest, TailsAreCutBetweenCharacters) {
    EXPECT_EQ(tail("abcdef", 3), "def");
    EXPECT_EQ(tail("漢字", 3), "字");
    EXPECT_EQ(tail("ab", 0), "");
}

TEST(Characters, AreWhatAReaderCounts) {
    const std::string family = "\U0001F468\u200D\U0001F469\u200D\U0001F467", accented = "e\u0301";
    EXPECT_EQ(last_character("ab"), 1u);
    EXPECT_EQ(last_character(""), 0u);
    EXPECT_EQ(last_character("a" + family), 1u);
    EXPECT_EQ(last_character(family + accented), family.size());
    EXPECT_EQ(first_character(family + "b"), family.size());
    EXPECT_EQ(first_character("\U0001F1E9\U0001F1EA\U0001F1EB\U0001F1F7"), 8u) << "a flag is two code points";
    EXPECT_EQ(typed_look("a" + family + "\x7f" + "b"), "ab");
}

}  // namespace
}  // namespace foresay::app
