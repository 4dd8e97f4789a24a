#include "tests/app/terminal_session.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <thread>

#include "tests/app/program.h"

namespace foresay::testing {

namespace {

constexpr int kLooks = 400;
constexpr std::chrono::milliseconds kBetween{50};

int count(const std::string& text, const std::string& part) {
    int times = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + part.size())) ++times;
    return times;
}

std::string look_until(const std::function<std::string()>& look,
                       const std::function<bool(const std::string&)>& enough) {
    std::string shown;
    for (int i = 0; i < kLooks; ++i) {
        shown = look();
        if (enough(shown)) break;
        std::this_thread::sleep_for(kBetween);
    }
    return shown;
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

void TerminalSession::SetUp() {
    if (shell("command -v tmux").empty()) {
        std::puts("skipped: tmux is not installed, so there is no terminal to try the conversation loop in");
        GTEST_SKIP() << "tmux is not installed";
    }
    const std::string name = ::testing::UnitTest::GetInstance()->current_test_info()->name();
    state_ = (scratch() / ("state_" + name)).string();
    std::filesystem::create_directories(state_);
}

void TerminalSession::TearDown() { stop(); }

void TerminalSession::stop() {
    if (!tmux_.empty()) shell(tmux_ + "kill-server");
    tmux_.clear();
}

void TerminalSession::start(const std::string& arguments, const std::string& environment, int columns, int rows) {
    const std::string home = scratch().string();
    const std::string command = "env FORESAY_LOG=error XDG_STATE_HOME=" + state_ + " XDG_CONFIG_HOME=" + home +
                                " XDG_CONFIG_DIRS=" + home + " XDG_CACHE_HOME=" + home + " " + environment + " " +
                                FORESAY_PROGRAM + " chat " + arguments + "; echo status $?; sleep 60";
    // A server of its own for each start: one that is being killed takes no new session.
    static int starts = 0;
    stop();
    tmux_ = "tmux -L foresay_" + std::to_string(::getpid()) + "_" + std::to_string(++starts) + " ";
    shell(tmux_ + "-f /dev/null new-session -d -x " + std::to_string(columns) + " -y " + std::to_string(rows) + " '" +
          command + "'");
}

void TerminalSession::type(const std::string& keys) { shell(tmux_ + "send-keys " + keys); }

void TerminalSession::paste(const std::string& text) {
    shell(tmux_ + "load-buffer " + write_scratch("paste.txt", text));
    shell(tmux_ + "paste-buffer -p");
}

void TerminalSession::resize(int columns, int rows) {
    shell(tmux_ + "resize-window -x " + std::to_string(columns) + " -y " + std::to_string(rows));
}

std::string TerminalSession::capture(const std::string& options) { return shell(tmux_ + "capture-pane -p " + options); }
std::string TerminalSession::screen() { return capture(""); }
std::string TerminalSession::screen_and_past() { return capture("-J -S -"); }
std::string TerminalSession::colours() { return capture("-e"); }

std::string TerminalSession::wait_for(const std::string& text, int times) {
    return look_until([&] { return screen(); }, [&](const std::string& shown) { return count(shown, text) >= times; });
}

std::string TerminalSession::wait_until_gone(const std::string& text) {
    return look_until([&] { return screen(); }, [&](const std::string& shown) { return count(shown, text) == 0; });
}

}  // namespace foresay::testing
