#include "tests/app/tmux_terminal.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "tests/app/program.h"

namespace foresay::testing {

namespace {

constexpr std::chrono::seconds kPatience{60};
constexpr std::chrono::milliseconds kBetween{50};

int count(const std::string& text, const std::string& part) {
    int times = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++times;
    return times;
}

}  // namespace

std::string shell(const std::string& command) {
    std::string out;
    std::FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
    if (!pipe) return out;
    std::array<char, 4096> chunk{};
    while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe)) out.append(chunk.data(), got);
    ::pclose(pipe);
    return out;
}

void TmuxTerminal::SetUp() {
    if (shell("command -v tmux").empty()) {
        std::puts("skipped: tmux is not installed, so there is no terminal to try the conversation loop in");
        GTEST_SKIP() << "tmux is not installed";
    }
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    state_ = (scratch() / ("state_" + name)).string();
    std::filesystem::create_directories(state_);
}

void TmuxTerminal::TearDown() { stop(); }

void TmuxTerminal::stop() {
    if (!tmux_.empty()) shell(tmux_ + "kill-server");
    tmux_.clear();
}

void TmuxTerminal::start(const std::string& arguments, const std::string& environment, int columns, int rows) {
    const std::string home = scratch().string();
    // `environment` comes last, so that a test of the pager can name one.
    const std::string command = "env FORESAY_LOG=error PAGER=cat XDG_STATE_HOME=" + state_ +
                                " XDG_CONFIG_HOME=" + home + " XDG_CONFIG_DIRS=" + home + " XDG_CACHE_HOME=" + home +
                                " " + environment + " " + FORESAY_PROGRAM + " chat " + arguments +
                                "; echo status $?; sleep 120";
    // A tmux server of its own for each start: one that is being killed takes no new session.
    static int starts = 0;
    stop();
    tmux_ = "tmux -L foresay_" + std::to_string(::getpid()) + "_" + std::to_string(++starts) + " ";
    shell(tmux_ + "-f /dev/null new-session -d -x " + std::to_string(columns) + " -y " + std::to_string(rows) + " '" +
          command + "'");
}

void TmuxTerminal::type(const std::string& keys) { shell(tmux_ + "send-keys " + keys); }

void TmuxTerminal::type_bytes(const std::string& bytes) {
    shell(tmux_ + "load-buffer " + write_scratch("bytes.txt", bytes));
    shell(tmux_ + "paste-buffer");
}

void TmuxTerminal::paste(const std::string& text) {
    shell(tmux_ + "load-buffer " + write_scratch("paste.txt", text));
    shell(tmux_ + "paste-buffer -p");
}

void TmuxTerminal::resize(int columns, int rows) {
    shell(tmux_ + "resize-window -x " + std::to_string(columns) + " -y " + std::to_string(rows));
}

void TmuxTerminal::signal(const std::string& name) {
    // The pane runs a shell, whose only child is the program.
    shell("pane=$(" + tmux_ + "display-message -p '#{pane_pid}'); kill -" + name +
          " $(cat /proc/$pane/task/$pane/children)");
}

std::string TmuxTerminal::modes() { return shell("stty -a -F $(" + tmux_ + "display-message -p '#{pane_tty}')"); }

std::string TmuxTerminal::capture(const std::string& options) { return shell(tmux_ + "capture-pane -p " + options); }
std::string TmuxTerminal::screen() { return capture(""); }
std::string TmuxTerminal::screen_and_past() { return capture("-J -S -"); }
std::string TmuxTerminal::colours() { return capture("-e"); }

void TmuxTerminal::expect_screen(const ::testing::Matcher<const std::string&>& wanted) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    std::string shown = screen();
    while (!wanted.Matches(shown) && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(kBetween);
        shown = screen();
    }
    EXPECT_THAT(shown, wanted);
}

void TmuxTerminal::wait_for(const std::string& text, int times) {
    expect_screen(::testing::Truly([&](const std::string& shown) { return count(shown, text) >= times; }));
}

void TmuxTerminal::wait_for_answers(int answers) {
    expect_screen(::testing::Truly([&](const std::string& shown) {
        const auto last = shown.rfind("\ncontext ");
        return count(shown, "context ") >= answers && last != std::string::npos &&
               shown.find("\n>", last) != std::string::npos;
    }));
}

}  // namespace foresay::testing
