#include "tests/app/program.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace foresay::testing {

namespace fs = std::filesystem;

namespace {

struct Folder {
    Folder() : path(fs::temp_directory_path() / ("foresay_app_" + std::to_string(::getpid()))) {
        fs::create_directories(path);
    }
    ~Folder() {
        std::error_code ignored;
        fs::remove_all(path, ignored);
    }
    fs::path path;
};

struct Pipe {
    Pipe() {
        if (::pipe2(ends.data(), O_CLOEXEC) != 0) throw std::runtime_error("no pipe");
    }
    ~Pipe() {
        close_read();
        close_write();
    }
    void close_read() { close_end(0); }
    void close_write() { close_end(1); }
    void close_end(std::size_t end) {
        if (ends[end] >= 0) ::close(ends[end]);
        ends[end] = -1;
    }
    std::array<int, 2> ends{-1, -1};
};

[[noreturn]] void become_program(const Call& call, const Pipe& in, const Pipe& out, const Pipe& error) {
    ::dup2(in.ends[0], STDIN_FILENO);
    ::dup2(out.ends[1], STDOUT_FILENO);
    ::dup2(error.ends[1], STDERR_FILENO);
    ::signal(SIGPIPE, SIG_DFL);
    // No models of the machine's people.
    ::setenv("HOME", (scratch() / "home").c_str(), 1);
    ::setenv("HF_HUB_CACHE", (scratch() / "hub").c_str(), 1);
    ::setenv("XDG_STATE_HOME", scratch().c_str(), 1);
    ::setenv("FORESAY_LOG", "error", 1);  // a busy machine makes sampler stages slow, and that is a warning
    ::unsetenv("FORESAY_PLUGIN_PATH");
    // No user's own configuration takes part.
    ::setenv("XDG_CONFIG_HOME", (scratch() / "config").c_str(), 1);
    ::setenv("XDG_CONFIG_DIRS", (scratch() / "system").c_str(), 1);
    for (const auto& [name, value] : call.environment) ::setenv(name.c_str(), value.c_str(), 1);
    std::vector<char*> arguments = {const_cast<char*>("foresay")};
    for (const std::string& argument : call.arguments) arguments.push_back(const_cast<char*>(argument.c_str()));
    arguments.push_back(nullptr);
    if (call.in_child) call.in_child();
    ::execv(FORESAY_PROGRAM, arguments.data());
    ::_exit(127);
}

}  // namespace

Outcome chat(const std::string& input, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"chat", "--lines", "-n", "10"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, input);
}

std::string complete(const std::string& prompt, std::vector<std::string> more) {
    std::vector<std::string> arguments = {"complete", "-p", prompt, "-n", "10"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments).out;
}

const fs::path& scratch() {
    static const Folder folder;
    return folder.path;
}

std::string write_scratch(const std::string& name, const std::string& text) {
    const fs::path path = scratch() / name;
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
    return path.string();
}

std::string source(const std::string& relative) { return (fs::path(FORESAY_SOURCE_DIR) / relative).string(); }

Outcome run(const Call& call) {
    ::signal(SIGPIPE, SIG_IGN);
    Pipe in, out, error;
    scratch();
    const pid_t child = ::fork();
    if (child < 0) throw std::runtime_error("cannot fork");
    if (child == 0) become_program(call, in, out, error);
    in.close_read();
    out.close_write();
    error.close_write();
    if (call.close_output) out.close_read();
    Outcome outcome;
    std::size_t written = 0;
    bool told = false, told_error = false;
    const auto deadline = std::chrono::steady_clock::now() + call.patience;
    while (out.ends[0] >= 0 || error.ends[0] >= 0) {
        if (written == call.input.size() && !call.hold_input) in.close_write();
        std::array<pollfd, 3> wait{{{out.ends[0], POLLIN, 0},
                                    {error.ends[0], POLLIN, 0},
                                    {written < call.input.size() ? in.ends[1] : -1, POLLOUT, 0}}};
        ::poll(wait.data(), wait.size(), 100);
        if (std::chrono::steady_clock::now() > deadline) ::kill(child, SIGKILL);
        std::array<char, 65536> chunk{};
        for (std::size_t i = 0; i < 2; ++i) {
            Pipe& pipe = i == 0 ? out : error;
            if (pipe.ends[0] < 0 || wait[i].revents == 0) continue;
            const ssize_t got = ::read(pipe.ends[0], chunk.data(), chunk.size());
            if (got <= 0) pipe.close_read();
            if (got > 0) (i == 0 ? outcome.out : outcome.error).append(chunk.data(), static_cast<std::size_t>(got));
            if (got > 0 && call.on_more) call.on_more(child, outcome);
        }
        if (wait[2].fd >= 0 && wait[2].revents != 0) {
            const ssize_t put = ::write(in.ends[1], call.input.data() + written, call.input.size() - written);
            written = put < 0 ? call.input.size() : written + static_cast<std::size_t>(put);
        }
        if (!told && !outcome.out.empty() && call.on_output) {
            told = true;
            call.on_output(child);
        }
        if (!told_error && !outcome.error.empty() && call.on_error) {
            told_error = true;
            call.on_error(child);
        }
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    outcome.status = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return outcome;
}

Outcome run(std::vector<std::string> arguments, std::string input) {
    Call call;
    call.arguments = std::move(arguments);
    call.input = std::move(input);
    return run(call);
}

}  // namespace foresay::testing
