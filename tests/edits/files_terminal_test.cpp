// Writing files in a real terminal: the diff, the question, and what Ctrl-C and other programs do meanwhile.
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/app/program.h"
#include "tests/app/tmux_terminal.h"
#include "tests/edits/scripted_model.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

class FilesInTerminal : public TmuxTerminal {
protected:
    void SetUp() override {
        TmuxTerminal::SetUp();
        before_ = fs::current_path();
        folder_ = scratch() / "work" / ::testing::UnitTest::GetInstance()->current_test_info()->name();
        fs::create_directories(folder_);
        fs::current_path(folder_);
    }
    void TearDown() override {
        TmuxTerminal::TearDown();
        fs::current_path(before_);
    }
    void start_scripted(const std::string& answer, const std::string& environment = "") {
        const fs::path model = scratch() / "scripted.gguf";
        write_scripted_model(model, {.answer = tokens_of(answer)});
        start("--model " + model.string() + " --set plugin=[] --set sampling.chain=[]", environment);
        wait_for("\n>");
    }

    fs::path before_, folder_;
};

TEST_F(FilesInTerminal, AsksAndWritesOnlyOnYes) {
    std::ofstream("a.txt") << "one\ntwo\n";
    start_scripted("```\none\n2\n```\n", "TERM=xterm-256color");
    type("'hello' Enter");
    wait_for_answers(1);
    type("'/write a.txt' Enter");
    expect_screen(AllOf(HasSubstr("-two"), HasSubstr("+2"), HasSubstr("Write a.txt (1 line added, 1 removed)? [y/N]")));
    EXPECT_THAT(colours(), AllOf(HasSubstr("\x1b[31m-two"), HasSubstr("\x1b[32m+2")));
    type("n");
    expect_screen(HasSubstr("Nothing was written."));
    EXPECT_EQ(bytes_of("a.txt"), "one\ntwo\n");
    type("'/write a.txt' Enter");
    wait_for("? [y/N]", 2);
    type("C-c");
    wait_for("Nothing was written.", 2);
    EXPECT_EQ(bytes_of("a.txt"), "one\ntwo\n");
    type("'/write a.txt' Enter");
    wait_for("? [y/N]", 3);
    type("y");
    expect_screen(HasSubstr("Wrote a.txt: 1 line added, 1 removed."));
    EXPECT_EQ(bytes_of("a.txt"), "one\n2\n");
    type("/undo Enter");
    expect_screen(HasSubstr("a.txt is as it was before the write."));
    EXPECT_EQ(bytes_of("a.txt"), "one\ntwo\n");
    type("/quit Enter");
    expect_screen(HasSubstr("status 0"));
}

TEST_F(FilesInTerminal, WhatOthersChangedIsLeftAlone) {
    std::ofstream("a.txt") << "one\n";
    start_scripted("```\nmine\n```\n");
    type("'hello' Enter");
    wait_for_answers(1);
    type("'/write a.txt' Enter");
    wait_for("? [y/N]");
    std::ofstream("a.txt") << "theirs\n";
    type("y");
    expect_screen(HasSubstr("a.txt was changed by another program meanwhile; nothing was written"));
    EXPECT_EQ(bytes_of("a.txt"), "theirs\n");
    type("'/write a.txt --yes' Enter");
    expect_screen(HasSubstr("Wrote a.txt"));
    std::ofstream("a.txt") << "theirs again\n";
    type("/undo Enter");
    expect_screen(HasSubstr("a.txt has changed since it was written; nothing was undone"));
    EXPECT_EQ(bytes_of("a.txt"), "theirs again\n");
    // The next one goes on to the conversation.
    type("/undo Enter");
    expect_screen(HasSubstr("Back to the start."));
    EXPECT_EQ(bytes_of("a.txt"), "theirs again\n");
}

TEST_F(FilesInTerminal, PatchShowsTheDiffFirst) {
    std::ofstream("a.py") << "def f():\n    return 1\n";
    start_scripted("```diff\n--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n def f():\n-    return 1\n+    return 22\n```\n");
    type("'/patch a.py return another number' Enter");
    wait_for("Write a.py (1 line added, 1 removed)? [y/N]");
    type("y");
    expect_screen(HasSubstr("Wrote a.py"));
    EXPECT_EQ(bytes_of("a.py"), "def f():\n    return 22\n");
}

}  // namespace
}  // namespace foresay::testing
