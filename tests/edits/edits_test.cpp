// The text of files, what differs between two texts, code blocks, and answers that change a file.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "app/edits/answer_edit.h"
#include "app/edits/code_blocks.h"
#include "app/edits/file_text.h"
#include "app/edits/line_diff.h"
#include "base/error.h"

namespace foresay::app {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string with(const std::string& bytes, std::vector<LineEdit> edits, FinalNewline end = FinalNewline::keep) {
    return FileText(bytes).with_edits(edits, end);
}

TEST(FileText, ReadsAnyLineEndsAsOne) {
    EXPECT_EQ(FileText("a\r\nb\nc").text(), "a\nb\nc");
    EXPECT_EQ(FileText("\xEF\xBB\xBF"
                       "a\r\n")
                  .text(),
              "a\n");
    EXPECT_EQ(FileText("a\rb\n").text(), "a\rb\n");  // a carriage return alone is a character
    EXPECT_EQ(FileText("").line_count(), 0u);
    EXPECT_EQ(FileText("caf\xe9\n").text(), "caf\xc3\xa9\n");
    EXPECT_EQ(FileText("caf\xc3\xa9\nna\xefve\n").text(), "caf\xc3\xa9\nna\xc3\xafve\n");
}

TEST(FileText, NewLinesTakeTheLineEndsOfTheirPlace) {
    EXPECT_EQ(with("a\r\nb\nc\n", {{0, 1, {"x", "y"}}}), "x\r\ny\r\nb\nc\n");
    EXPECT_EQ(with("a\r\nb\nc\n", {{1, 2, {"x"}}}), "a\r\nx\nc\n");
    EXPECT_EQ(with("a\r\nb\r\n", {{2, 2, {"x"}}}), "a\r\nb\r\nx\r\n");
    EXPECT_EQ(with("a\r\nb\n", {{0, 0, {"x"}}}), "x\r\na\r\nb\n");
    EXPECT_EQ(with("", {{0, 0, {"x"}}}), "x\n");
    EXPECT_EQ(with("\xEF\xBB\xBF"
                   "a\n",
                   {{0, 1, {"b"}}}),
              "\xEF\xBB\xBF"
              "b\n");
}

TEST(FileText, TheFinalNewlineStaysAsItIs) {
    EXPECT_EQ(with("a\nb", {{1, 2, {"c"}}}), "a\nc");
    EXPECT_EQ(with("a\nb", {{2, 2, {"c"}}}), "a\nb\nc");
    EXPECT_EQ(with("a\r\nb", {{1, 2, {}}}), "a");
    EXPECT_EQ(with("a\nb\n", {{1, 2, {"c"}}}), "a\nc\n");
    EXPECT_EQ(with("a\nb", {{1, 2, {"c"}}}, FinalNewline::present), "a\nc\n");
    EXPECT_EQ(with("a\nb\n", {{1, 2, {"c"}}}, FinalNewline::absent), "a\nc");
    EXPECT_EQ(FileText("a\nb").with_text("a\nx\n"), "a\nx");
    EXPECT_EQ(FileText("").with_text("a"), "a");
    EXPECT_EQ(FileText("").with_text("a\n"), "a\n");
}

TEST(FileText, OtherEncodingsStayOutsideTheChange) {
    EXPECT_EQ(with("caf\xe9\nb\n", {{1, 2, {"\xc3\xbc"}}}), "caf\xe9\n\xfc\n");                      // Latin-1
    EXPECT_EQ(with("\xc3\xa9\nb\xff\nc\n", {{2, 3, {"\xc3\xbc"}}}), "\xc3\xa9\nb\xff\n\xc3\xbc\n");  // damaged UTF-8
    EXPECT_THROW(with("caf\xe9\nb\n", {{1, 2, {"\xe2\x82\xac"}}}), Error);
    EXPECT_EQ(FileText("caf\xe9\nb\n").with_text("caf\xc3\xa9\nc\n"), "caf\xe9\nc\n");
}

TEST(FileText, InsertionsKeepEveryOtherByte) {
    EXPECT_EQ(FileText("ab\r\ncd").with_insertion(1, "x\ny"), "ax\r\nyb\r\ncd");
    EXPECT_EQ(FileText("ab\r\ncd").with_insertion(2, "\nx"), "ab\r\nx\r\ncd");
    EXPECT_EQ(FileText("ab\r\ncd").with_insertion(5, "\n"), "ab\r\ncd\r\n");
    EXPECT_EQ(FileText("ab\n").with_insertion(3, "cd\n"), "ab\ncd\n");
    EXPECT_EQ(FileText("").with_insertion(0, "a\n"), "a\n");
    EXPECT_EQ(FileText("\xe9"
                       "b\n")
                  .with_insertion(2, "\xc3\xbc"),
              "\xe9\xfc"
              "b\n");
    EXPECT_EQ(FileText("\xEF\xBB\xBF"
                       "b")
                  .with_insertion(0, "a"),
              "\xEF\xBB\xBF"
              "ab");
}

// ------------------------------------------------------------------------------------------------------------- diffs

std::vector<std::string_view> views(const std::vector<std::string>& lines) { return {lines.begin(), lines.end()}; }

std::vector<std::string> applied(const std::vector<std::string>& before, const std::vector<LineEdit>& edits) {
    std::vector<std::string> out;
    std::size_t at = 0;
    for (const LineEdit& edit : edits) {
        out.insert(out.end(), before.begin() + static_cast<std::ptrdiff_t>(at),
                   before.begin() + static_cast<std::ptrdiff_t>(edit.begin));
        out.insert(out.end(), edit.lines.begin(), edit.lines.end());
        at = edit.end;
    }
    out.insert(out.end(), before.begin() + static_cast<std::ptrdiff_t>(at), before.end());
    return out;
}

// The length of the longest common subsequence, by the textbook.
std::size_t common(const std::vector<std::string>& a, const std::vector<std::string>& b) {
    std::vector<std::vector<std::size_t>> table(a.size() + 1, std::vector<std::size_t>(b.size() + 1, 0));
    for (std::size_t i = 0; i < a.size(); ++i) {
        for (std::size_t j = 0; j < b.size(); ++j) {
            table[i + 1][j + 1] = a[i] == b[j] ? table[i][j] + 1 : std::max(table[i][j + 1], table[i + 1][j]);
        }
    }
    return table[a.size()][b.size()];
}

TEST(LineDiff, IsTheShortestOne) {
    std::mt19937 random(7);
    for (int round = 0; round < 400; ++round) {
        const auto lines = [&] {
            std::vector<std::string> out(random() % 25);
            for (std::string& line : out) line = std::string(1, static_cast<char>('a' + random() % 4));
            return out;
        };
        const std::vector<std::string> a = lines(), b = lines();
        const std::vector<LineEdit> edits = diff_lines(views(a), views(b));
        ASSERT_EQ(applied(a, edits), b);
        const DiffSize size = size_of(edits);
        ASSERT_EQ(size.removed, a.size() - common(a, b));
        ASSERT_EQ(size.added, b.size() - common(a, b));
        for (std::size_t i = 1; i < edits.size(); ++i) ASSERT_GT(edits[i].begin, edits[i - 1].end);
    }
}

TEST(LineDiff, LargeAndVeryDifferentTextsTakeNoLongTime) {
    std::mt19937 random(8);
    std::vector<std::string> a, b;
    for (int i = 0; i < 20000; ++i) {
        if (random() % 3 != 0) a.push_back("a" + std::to_string(i));
        if (random() % 3 == 0) a.push_back("common " + std::to_string(random() % 50));
        if (random() % 50 == 0) a.push_back("both " + std::to_string(i)), b.push_back(a.back());
        if (random() % 3 != 0) b.push_back("b" + std::to_string(i));
        if (random() % 3 == 0) b.push_back("common " + std::to_string(random() % 50));
    }
    const std::vector<LineEdit> edits = diff_lines(views(a), views(b));
    EXPECT_EQ(applied(a, edits), b);
    EXPECT_GT(edits.size(), 100u) << "lines that both have once divide the texts";
    EXPECT_EQ(applied(b, diff_lines(views(b), {})), std::vector<std::string>());
}

TEST(LineDiff, IsShownWithContextAndColours) {
    std::vector<std::string> before;
    for (int i = 1; i <= 20; ++i) before.push_back("line " + std::to_string(i));
    std::vector<std::string> after = before;
    after[9] = "new \x1b[2J";
    const std::string shown = shown_diff(views(before), diff_lines(views(before), views(after)), {});
    EXPECT_EQ(shown, "@@ -7,7 +7,7 @@\n line 7\n line 8\n line 9\n-line 10\n+new ?[2J\n line 11\n line 12\n line 13\n");
    const std::string colours = shown_diff(views(before), diff_lines(views(before), views(after)), {.colours = true});
    EXPECT_THAT(colours, HasSubstr("\x1b[31m-line 10\x1b[0m\n\x1b[32m+new"));
    EXPECT_THAT(shown_diff(views(before), diff_lines(views(before), {}), {.most_lines = 5}),
                HasSubstr("... and 16 more lines"));
    EXPECT_EQ(shown_diff({}, diff_lines({}, views({"a"})), {}), "@@ -0,0 +1 @@\n+a\n");
}

TEST(CodeBlocks, AreFoundWithTheirLanguage) {
    const auto blocks = code_blocks("text\n```py\nx = 1\n```\n~~~\n```\n~~~\n  ```c x\n  y\n   z\n  ```\n```\nopen\n");
    ASSERT_EQ(blocks.size(), 4u);
    EXPECT_EQ(blocks[0].text, "x = 1\n");
    EXPECT_EQ(blocks[0].language, "py");
    EXPECT_EQ(blocks[1].text, "```\n");
    EXPECT_EQ(blocks[2].text, "y\n z\n");
    EXPECT_EQ(blocks[2].language, "c");
    EXPECT_TRUE(blocks[2].closed);
    EXPECT_EQ(blocks[3].text, "open\n");
    EXPECT_FALSE(blocks[3].closed);
    EXPECT_TRUE(code_blocks("``` a `b` ```\nx\n").empty());
    EXPECT_TRUE(code_blocks("```").empty());
}

// ----------------------------------------------------------------------------------------------------------- answers

std::string edited(const std::string& file, const std::string& answer, AskedFor asked = AskedFor::whole_file) {
    return edited_by_answer(FileText(file), "a.py", answer, asked);
}
std::string refusal(const std::string& file, const std::string& answer, AskedFor asked = AskedFor::whole_file) {
    try {
        edited(file, answer, asked);
    } catch (const Error& problem) {
        return problem.what();
    }
    return "accepted";
}

const std::string kFile = "def a():\n    return 1\n\ndef b():\n    return 2\n\ndef c():\n    return 3\n";

TEST(Answers, WholeFilesAndDiffsAreFoundAmongProse) {
    EXPECT_EQ(edited("a\nb\n", "Sure:\n```py\na\nc\n```\nDone, use `c`.\n"), "a\nc\n");
    EXPECT_EQ(edited("a\r\nb", "```\ns\n```\nand\n```py\na\nc\nd\n```"), "a\r\nc\r\nd");
    const std::string diff = "--- a/a.py\n+++ b/a.py\n@@ -4,2 +4,2 @@\n def b():\n-    return 2\n+    return 22\n";
    const std::string after = "def a():\n    return 1\n\ndef b():\n    return 22\n\ndef c():\n    return 3\n";
    EXPECT_EQ(edited(kFile, "Here it is:\n```diff\n" + diff + "```\nIt works.\n"), after);
    EXPECT_EQ(edited(kFile, "Here it is:\n\n" + diff + "\nIt works:\n- well\n"), after);
    EXPECT_EQ(edited(kFile, diff, AskedFor::diff), after);
    EXPECT_THAT(refusal(kFile, "```py\nx = 1\n```\n", AskedFor::diff), HasSubstr("the answer has no diff"));
    EXPECT_THAT(refusal(kFile, "I cannot do that."), HasSubstr("no code block and no diff"));
}

TEST(Answers, OnlyTheFileThatWasNamedIsChanged) {
    const std::string two =
        "```diff\n--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-x\n+y\n--- a/dir/a.py\n+++ b/dir/a.py\n"
        "@@ -1 +1 @@\n-def a():\n+def z():\n```\n";
    EXPECT_EQ(edited(kFile, two), "def z" + kFile.substr(5));
    EXPECT_THAT(refusal(kFile,
                        "```diff\n--- a/b.py\n+++ b/b.py\n@@ -1 +1 @@\n-x\n+y\n--- a/c.py\n+++ b/c.py\n"
                        "@@ -1 +1 @@\n-x\n+y\n```\n"),
                HasSubstr("changes other files, and not a.py"));
}

}  // namespace
}  // namespace foresay::app
