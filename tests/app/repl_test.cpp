// The conversation loop in a real terminal, driven through tmux.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "tests/app/program.h"

namespace foresay::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

std::string shell(const std::string& command) {
    std::string out;
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (!pipe) return out;
    std::array<char, 4096> chunk{};
    while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe)) out.append(chunk.data(), got);
    ::pclose(pipe);
    return out;
}

class Repl : public ::testing::Test {
protected:
    void SetUp() override {
        if (shell("command -v tmux").empty()) {
            std::puts("skipped: tmux is not installed, so there is no terminal to try the conversation loop in");
            GTEST_SKIP() << "tmux is not installed";
        }
    }
    void TearDown() override { shell(tmux_ + "kill-server"); }

    // Starts the program; its exit status appears behind "status" at the end.
    void start(const std::string& arguments) {
        const std::string command = "FORESAY_LOG=error XDG_STATE_HOME=" + scratch().string() +
                                    " XDG_CONFIG_HOME=/nonexistent XDG_CONFIG_DIRS=/nonexistent " + FORESAY_PROGRAM +
                                    " chat " + arguments + "; echo status $?; sleep 60";
        shell(tmux_ + "-f /dev/null new-session -d -x 100 -y 50 '" + command + "'");
    }
    void type(const std::string& keys) { shell(tmux_ + "send-keys " + keys); }
    std::string screen() { return shell(tmux_ + "capture-pane -p"); }
    // The screen once it holds `text`, or as it is after ten seconds.
    std::string wait_for(const std::string& text) {
        std::string shown;
        for (int i = 0; i < 200; ++i) {
            shown = screen();
            if (shown.find(text) != std::string::npos) break;
            std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
        return shown;
    }

    // A server of its own for each test: one that is being killed takes no new session.
    const std::string tmux_ = "tmux -L foresay_" + std::to_string(::getpid()) + "_" +
                              ::testing::UnitTest::GetInstance()->current_test_info()->name() + " ";
};

TEST_F(Repl, AnswersRetriesAndLeaves) {
    start("-n 12");
    EXPECT_THAT(wait_for("\n>"), HasSubstr("/help lists the commands"));
    type("'def fib(n):' Enter");
    EXPECT_THAT(wait_for("context "), HasSubstr("output "));
    type("/retyr Enter");
    EXPECT_THAT(wait_for("did you mean"), HasSubstr("there is no command /retyr; did you mean /retry?"));
    type("/retry Enter");
    type("/stats Enter");
    EXPECT_THAT(wait_for("branch 1"), HasSubstr("answers   2"));
    type("/quit Enter");
    EXPECT_THAT(wait_for("status"), HasSubstr("status 0"));
    struct stat history {};
    ASSERT_EQ(::stat((scratch() / "foresay" / "history").c_str(), &history), 0);
    EXPECT_EQ(history.st_mode & 0777, 0600u);
}

TEST_F(Repl, InterruptKeepsThePartialAnswer) {
    start("-n 0 --speculation off --set plugin=[] --set sampling.chain=[] --set sampling.seed=3");
    wait_for("\n>");
    type("'import os' Enter");
    std::this_thread::sleep_for(std::chrono::milliseconds(600));
    type("C-c");
    EXPECT_THAT(wait_for("cancelled"), HasSubstr("cancelled"));
    type("/stats Enter");
    EXPECT_THAT(wait_for("answers   1"), Not(HasSubstr("answers   1, 0 tokens")));
    type("C-c");
    EXPECT_THAT(wait_for("again leaves"), HasSubstr("Ctrl-C again leaves"));
    type("C-c");
    EXPECT_THAT(wait_for("status"), HasSubstr("status 130"));
}

TEST_F(Repl, EndOfInputLeaves) {
    start("");
    wait_for("\n>");
    type("C-d");
    EXPECT_THAT(wait_for("status"), HasSubstr("status 0"));
}

}  // namespace
}  // namespace foresay::testing
