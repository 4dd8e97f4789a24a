// Unified diffs that fit, that are shifted, that do not fit, and that mean harm.
#include "app/edits/unified_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace foresay::app {
namespace {

using ::testing::HasSubstr;

std::string patched(const std::string& file, const std::string& diff, bool fenced = true) {
    const FileText text(file);
    const std::vector<FileDiff> files = parse_diff(diff, fenced);
    EXPECT_EQ(files.size(), 1u);
    const PlacedDiff placed = place_diff(files.front(), text.lines());
    return text.with_edits(placed.edits, placed.final_newline);
}
std::string refusal(const std::string& file, const std::string& diff, bool fenced = true) {
    try {
        patched(file, diff, fenced);
    } catch (const Error& problem) {
        return problem.what();
    }
    return "accepted";
}

const std::string kFile = "one\ntwo\nthree\nfour\nfive\nsix\nseven\neight\n";

TEST(UnifiedDiff, AppliesWhereItFits) {
    EXPECT_EQ(patched(kFile, "--- a/f\n+++ b/f\n@@ -2,3 +2,4 @@ def f():\n two\n-three\n+3\n+3.5\n four\n"),
              "one\ntwo\n3\n3.5\nfour\nfive\nsix\nseven\neight\n");
    EXPECT_EQ(patched(kFile, "@@ -1,2 +1,1 @@\n-one\n two\n@@ -7,2 +6,3 @@\n seven\n eight\n+nine\n"),
              "two\nthree\nfour\nfive\nsix\nseven\neight\nnine\n");
    EXPECT_EQ(patched(kFile, "@@ -3,0 +4 @@\n+between\n"), "one\ntwo\nthree\nbetween\nfour\nfive\nsix\nseven\neight\n");
    EXPECT_EQ(patched(kFile, "@@ -0,0 +1 @@\n+zero\n"), "zero\n" + kFile);
    EXPECT_EQ(patched("", "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n"), "a\nb\n");
    EXPECT_EQ(patched("a\n", "@@ -1 +0,0 @@\n-a\n"), "");
}

TEST(UnifiedDiff, AppliesWhenItIsShiftedAndWhenItsNumbersAreWrong) {
    const std::string body = " four\n-five\n+5\n six\n";
    const std::string after = "one\ntwo\nthree\nfour\n5\nsix\nseven\neight\n";
    for (const char* header : {"@@ -4,3 +4,3 @@", "@@ -1,3 +1,3 @@", "@@ -900,3 +900,3 @@", "@@ -4,9 +4,9 @@",
                               "@@ -4,1 +4,1 @@", "@@", "@@ ... @@", "@@ def f():", "@@ -4 +4 @@"}) {
        EXPECT_EQ(patched(kFile, std::string(header) + "\n" + body), after) << header;
    }
    // The hunks may come in any order.
    EXPECT_EQ(patched(kFile, "@@ -7,1 +7,1 @@\n-seven\n+7\n@@ -1,1 +1,1 @@\n-one\n+1\n"),
              "1\ntwo\nthree\nfour\nfive\nsix\n7\neight\n");
    // A shift found for one hunk helps the next.
    EXPECT_EQ(patched("new\nx\na\nx\nb\n", "@@ -1,2 +1,2 @@\n x\n-a\n+A\n@@ -3,1 +3,1 @@\n-x\n+y\n"),
              "new\nx\nA\ny\nb\n");
}

TEST(UnifiedDiff, TolerancesOfTextsThatModelsWrite) {
    EXPECT_EQ(patched("a\n\nb\n", "@@ -1,3 +1,3 @@\n a\n\n-b\n+c\n"), "a\n\nc\n") << "an empty line of context";
    EXPECT_EQ(patched("a\nb  \nc\n", "@@ -1,3 +1,3 @@\n a\n b\n-c\n+d\n"), "a\nb  \nd\n") << "blanks at a line's end";
    EXPECT_EQ(patched("a\r\nb\r\n", "@@ -1,2 +1,2 @@\r\n a\r\n-b\r\n+c\r\n"), "a\r\nc\r\n") << "CRLF";
    EXPECT_EQ(patched("a\nb\n", "Text.\n\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n\nMore:\n- no line of it\n", false), "a\nc\n");
    EXPECT_EQ(patched("-- x\n", "--- a/f\n+++ b/f\n@@ -1,1 +1,1 @@\n--- x\n+++ y\n"), "++ y\n") << "not a header";
}

TEST(UnifiedDiff, MarksOfAMissingNewline) {
    EXPECT_EQ(patched("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n"), "a\nc\n");
    EXPECT_EQ(patched("a\nb\n", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n\\ No newline at end of file\n"), "a\nc");
    EXPECT_EQ(patched("a\nb", "@@ -1,2 +1,2 @@\n-a\n+c\n b\n\\ No newline at end of file\n"), "c\nb");
    EXPECT_EQ(patched("a\nb", "@@ -1,2 +1,2 @@\n a\n-b\n+c\n"), "a\nc") << "no mark: as it was";
    EXPECT_EQ(patched("a\nb\nc\n", "@@ -1,1 +1,1 @@\n-a\n+x\n\\ No newline at end of file\n"), "x\nb\nc\n")
        << "the mark counts at the end of the file only";
}

TEST(UnifiedDiff, WhatDoesNotFitIsRefused) {
    EXPECT_THAT(refusal(kFile, "@@ -2,2 +2,2 @@\n two\n-drei\n+3\n"), HasSubstr("it has no line 'drei'"));
    EXPECT_THAT(refusal(kFile, "@@ -2,2 +2,2 @@\n two\n-four\n+4\n"), HasSubstr("not one after the other"));
    EXPECT_THAT(refusal("a\nb\na\nb\na\nb\n", "@@ -9,2 +9,2 @@\n a\n-b\n+c\n"), HasSubstr("several places"));
    EXPECT_THAT(refusal(kFile, "@@ -1,2 +1,2 @@\n one\n-two\n+2\n@@ -2,2 +2,2 @@\n-two\n+zwei\n three\n"),
                HasSubstr("change the same lines"));
    EXPECT_THAT(refusal(kFile, "@@\n+where?\n"), HasSubstr("does not say where"));
    EXPECT_THAT(refusal("", "@@ -1,1 +1,1 @@\n-a\n+b\n"), HasSubstr("does not fit"));
}

TEST(UnifiedDiff, HostileOnesAreRefused) {
    for (const char* diff : {"@@ -1,-3 +1,2 @@\n-a\n+b\n", "@@ -99999999999999999999,1 +1,1 @@\n-one\n+b\n",
                             "@@ -4000000000,1 +1,1 @@\n-one\n+b\n", "@@ -1,1 +-1,1 @@\n-one\n+b\n",
                             "@@ -1,1 1,1 @@\n-one\n+b\n", "@@ -1,1 +1,1\n-one\n+b\n", "@@ -,1 +1 @@\n-one\n+1\n"}) {
        EXPECT_THAT(refusal(kFile, diff), HasSubstr("line 1 of the diff")) << diff;
    }
    EXPECT_THAT(refusal(kFile, "@@ -1 +1 @@\n-one\n+1\nonetwo\n"), HasSubstr("line 4 of the diff"));
    EXPECT_THAT(refusal(kFile, "@@ -1 +1 @@\n"), HasSubstr("without lines"));
    EXPECT_THAT(refusal(kFile, "no diff at all\n"), HasSubstr("has no diff"));
    // A huge place or count does no harm.
    EXPECT_THAT(refusal(kFile, "@@ -1000000000,0 +1,1 @@\n+x\n"), HasSubstr("does not say where"));
    EXPECT_EQ(patched(kFile, "@@ -1,1000000000 +1,1000000000 @@\n-one\n+1\n two\n"), "1" + kFile.substr(3));
}

}  // namespace
}  // namespace foresay::app
