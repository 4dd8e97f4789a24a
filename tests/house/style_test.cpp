// Columns, clang-format and words. Each rule is also shown a file that breaks it.
#include "tests/house/style.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "tests/house/switches.h"

namespace foresay::house {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// `kept`: the rule's switch. A rule that is off says how much is left to do.
void expect_kept(const Complaints& complaints, bool kept, const std::string& name) {
    if (kept || std::getenv("FORESAY_HOUSE_ALL") != nullptr) {
        for (const std::string& complaint : complaints) ADD_FAILURE() << complaint;
    } else if (complaints.empty()) {
        ADD_FAILURE() << "the tree keeps this rule: turn on " << name << " in tests/house/switches.h";
    } else {
        GTEST_SKIP() << complaints.size() << " places are left before " << name << " can be turned on";
    }
}

Complaints everywhere(Complaints (*rule)(const File&)) {
    Complaints all;
    for (const File& file : project_files()) {
        for (std::string& complaint : rule(file)) all.push_back(std::move(complaint));
    }
    return all;
}

TEST(Style, LinesHave120Columns) { expect_kept(everywhere(check_columns), kColumnsAreKept, "kColumnsAreKept"); }

TEST(Style, IsThatOfClangFormat) {
    const std::string command = clang_format();
    if (command.empty()) GTEST_SKIP() << "clang-format 14 is not installed";
    expect_kept(check_format(command, project_files()), kFormatIsKept, "kFormatIsKept");
}

TEST(Style, ProseIsPlain) { expect_kept(everywhere(check_english), kWordsAreKept, "kWordsAreKept"); }

TEST(StyleRules, FindALongLine) {
    const std::string words = "// " + std::string(59, 'a') + " ";
    EXPECT_THAT(check_columns({"core/a.h", "\n" + words + std::string(58, 'b') + "\n"}),
                ElementsAre("core/a.h:2: 121 columns"));
    EXPECT_THAT(check_columns({"core/a.h", words + std::string(57, 'b')}), IsEmpty());
    EXPECT_THAT(check_columns({"core/a.h", words + std::string(56, 'b') + "\xC3\xA9"}), IsEmpty())
        << "a letter of two bytes";
    EXPECT_THAT(check_columns({"README.md", words + std::string(58, 'b')}).size(), 1u);
    EXPECT_THAT(check_columns({"README.md", "| a | " + std::string(200, 'b') + " |"}), IsEmpty());
    EXPECT_THAT(check_columns({"core/a.h", "| a | " + std::string(200, 'b') + " |"}).size(), 1u);
    EXPECT_THAT(check_columns({"core/a.h", "// Source: https://" + std::string(200, 'b')}), IsEmpty());
    EXPECT_THAT(check_columns({"core/a.h", "    \"" + std::string(200, 'b') + "\""}), IsEmpty())
        << "nothing to break at";
}

TEST(StyleRules, FindAFileOfAnotherStyle) {
    const std::string command = clang_format();
    if (command.empty()) GTEST_SKIP() << "clang-format 14 is not installed";
    const std::vector<File> files = {{"tests/house/tree.h", ""}, {"tests/house/style_test.cpp", ""}, {"README.md", ""}};
    EXPECT_THAT(check_format(command, files), IsEmpty());
    const Complaints complaints = check_format(command + " --style='{BasedOnStyle: Google, IndentWidth: 7}'", files);
    EXPECT_THAT(complaints, ElementsAre(StartsWith("tests/house/tree.h:"), StartsWith("tests/house/style_test.cpp:")));
}

TEST(StyleRules, ReadProseOnly) {
    EXPECT_EQ(prose_of({"core/a.cpp", "int a; // b\n\"c\\\"d\" e /* f\ng */ h"}),
              "       // b\n\"c\\\"d\"   /* f\ng */  ");
    EXPECT_EQ(prose_of({"core/a.cpp", "1'000 'x' R\"(y\"z)\" w"}), "      'x' R\"(y\"z)\"  ");
    EXPECT_EQ(prose_of({"README.md", "int a;"}), "int a;");
}

TEST(StyleRules, FindAWord) {
    EXPECT_EQ(check_english({"core/a.cpp", "int behind = 0;\n"}).size(), 0u) << "a name";
    EXPECT_THAT(check_english({"core/a.cpp", "\n// What comes behind it.\n"}),
                ElementsAre("core/a.cpp:2: \"behind\"; say after, past, at the end of"));
    EXPECT_EQ(check_english({"core/a.cpp", "say(\"Behind it\");"}).size(), 1u);
    EXPECT_EQ(check_english({"README.md", "a server behind NAT"}).size(), 0u);
    EXPECT_EQ(check_english({"README.md", "Build it anew; renewal"}).size(), 1u);
}

}  // namespace
}  // namespace foresay::house
