#include "app/bench/pseudo_terminal.h"

#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace foresay::app {

PseudoTerminal::PseudoTerminal(const std::vector<std::string>& arguments, const std::string& home) {
    const winsize size{40, 100, 0, 0};
    child_ = ::forkpty(&terminal_, nullptr, nullptr, &size);
    if (child_ < 0) throw Error(std::string("cannot create a pseudo-terminal: ") + std::strerror(errno));
    if (child_ != 0) return;
    ::setenv("TERM", "xterm", 1);
    ::setenv("NO_COLOR", "1", 1);
    ::setenv("FORESAY_LOG", "off", 1);
    ::setenv("XDG_STATE_HOME", home.c_str(), 1);
    std::vector<char*> words = {const_cast<char*>("foresay")};
    for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
    words.push_back(nullptr);
    ::execv("/proc/self/exe", words.data());
    ::_exit(127);
}

PseudoTerminal::~PseudoTerminal() {
    ::close(terminal_);
    ::kill(child_, SIGTERM);
    ::waitpid(child_, nullptr, 0);
}

void PseudoTerminal::type(std::string_view keys) {
    while (!keys.empty()) {
        const ssize_t wrote = ::write(terminal_, keys.data(), keys.size());
        if (wrote > 0) keys.remove_prefix(static_cast<std::size_t>(wrote));
        if (wrote < 0 && errno != EINTR) throw Error("the measured program has ended");
    }
}

bool PseudoTerminal::wait(const std::function<bool(const std::string&)>& enough, std::chrono::milliseconds patience) {
    const Clock::time_point end = Clock::now() + patience;
    while (!enough(shown_)) {
        const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - Clock::now()).count();
        if (left <= 0) return false;
        pollfd output{terminal_, POLLIN, 0};
        if (::poll(&output, 1, static_cast<int>(left)) <= 0) continue;
        std::array<char, 65536> chunk{};
        const ssize_t got = ::read(terminal_, chunk.data(), chunk.size());
        if (got <= 0) return false;
        shown_.append(chunk.data(), static_cast<std::size_t>(got));
    }
    return true;
}

void PseudoTerminal::expect(std::string_view text, std::chrono::milliseconds patience) {
    if (wait([&](const std::string& shown) { return shown.find(text) != std::string::npos; }, patience)) return;
    throw Error("the conversation loop did not show '" + std::string(text) + "'; it showed: " + shown_);
}

}  // namespace foresay::app
