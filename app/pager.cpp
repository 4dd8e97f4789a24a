#include "app/pager.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "app/command_line/parser.h"
#include "app/output.h"
#include "app/terminal.h"

namespace foresay::app {

namespace {

constexpr int kNotFound = 127, kNotExecutable = 126;  // exit statuses of sh

bool no_pager = false;

// Empty: none.
std::string pager_command() {
    if (no_pager || !stdin_is_terminal() || !terminal_moves()) return {};
    const char* pager = std::getenv("PAGER");
    std::string command = pager ? pager : "less";
    return command == "cat" ? std::string() : command;
}

// The environment, with LESS and LV as git sets them, unless they are set.
std::vector<std::string> pager_environment() {
    std::vector<std::string> all;
    for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
        all.emplace_back(*variable);
    if (!std::getenv("LESS")) all.emplace_back("LESS=FRX");
    if (!std::getenv("LV")) all.emplace_back("LV=-c");
    return all;
}

// While it exists, Ctrl-C is ignored: it belongs to the pager.
class InterruptsIgnored {
public:
    InterruptsIgnored() {
        struct sigaction ignore {};
        ignore.sa_handler = SIG_IGN;
        ::sigaction(SIGINT, &ignore, &before_);
    }
    ~InterruptsIgnored() { ::sigaction(SIGINT, &before_, nullptr); }
    InterruptsIgnored(const InterruptsIgnored&) = delete;
    InterruptsIgnored& operator=(const InterruptsIgnored&) = delete;

private:
    struct sigaction before_ {};
};

// Starts `command` in a shell, with `input` as its standard input. Returns 0 if that fails.
pid_t start(const std::string& command, int input) {
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
    ::posix_spawn_file_actions_adddup2(&actions, input, STDIN_FILENO);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGINT, SIGPIPE, SIGTERM, SIGHUP}) sigaddset(&defaults, signal);
    ::posix_spawnattr_setsigdefault(&attributes, &defaults);
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGDEF);
    std::string shell = "sh", option = "-c", words = command;
    std::array<char*, 4> arguments = {shell.data(), option.data(), words.data(), nullptr};
    std::vector<std::string> variables = pager_environment();
    std::vector<char*> environment;
    for (std::string& variable : variables) environment.push_back(variable.data());
    environment.push_back(nullptr);
    pid_t child = 0;
    if (::posix_spawn(&child, "/bin/sh", &actions, &attributes, arguments.data(), environment.data()) != 0) child = 0;
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    return child;
}

// False: the pager could not be started.
bool shown_in_pager(const std::string& command, std::string_view text) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) return false;
    const TerminalLoan loan;
    const InterruptsIgnored ignored;
    const pid_t child = start(command, ends[0]);
    ::close(ends[0]);
    while (child != 0 && !text.empty()) {
        const ssize_t wrote = ::write(ends[1], text.data(), text.size());
        if (wrote >= 0) {
            text.remove_prefix(static_cast<std::size_t>(wrote));
        } else if (errno != EINTR) {
            break;  // the user has left the pager
        }
    }
    ::close(ends[1]);
    if (child == 0) return false;
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return !WIFEXITED(status) || (WEXITSTATUS(status) != kNotFound && WEXITSTATUS(status) != kNotExecutable);
}

// False: the text is to be written without a pager.
bool paged(std::string_view text) {
    const std::string command = pager_command();
    // One row is left for the prompt.
    if (command.empty() || rows_of(text, terminal_columns()) < terminal_rows()) return false;
    return shown_in_pager(command, text);
}

}  // namespace

void add_no_pager_flag(OptionParser& parser) {
    parser.flag("--no-pager", no_pager, "print long text at once, without $PAGER or less");
}

std::size_t rows_of(std::string_view text, std::size_t columns) {
    std::size_t rows = 0;
    while (!text.empty()) {
        const std::size_t end = std::min(text.find('\n'), text.size());
        const std::size_t width = columns_of(text.substr(0, end));
        rows += width == 0 ? 1 : (width + columns - 1) / columns;
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return rows;
}

void page(std::string_view text) {
    if (!paged(text)) print(text);
}

void page_message(std::string_view text) {
    if (!stderr_is_terminal() || !paged(text)) say(text);
}

}  // namespace foresay::app
