// tests/app/program.h: runs the built program and returns its status and output.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace foresay::testing {

struct Outcome {
    int status = -1;  // exit status; 128 + signal when it was killed
    std::string out, error;
};

struct Call {
    std::vector<std::string> arguments;
    std::string input;  // of standard input
    std::vector<std::pair<std::string, std::string>> environment;
    bool close_output = false;  // no one reads standard output
    bool hold_input = false;    // standard input stays open until the program ends
    // Called when the first byte of output, or of standard error, has arrived.
    std::function<void(pid_t)> on_output, on_error;
    // Called when more output has arrived, with all of it so far.
    std::function<void(pid_t, const Outcome&)> on_more;
    // Called in the new process before it becomes the program; only what is safe after fork().
    std::function<void()> in_child;
#ifdef FORESAY_SANITIZED
    std::chrono::seconds patience{360};
#else
    std::chrono::seconds patience{60};
#endif
};

// Runs the program with a home of its own; kills it when its time is up.
Outcome run(const Call& call);
Outcome run(std::vector<std::string> arguments, std::string input = "");

// What a conversation of at most 10 tokens an answer prints; every line of `input` is an entry or a command.
Outcome chat(const std::string& input, std::vector<std::string> more = {});
// What the same model writes after `prompt`.
std::string complete(const std::string& prompt, std::vector<std::string> more = {});

// A folder for this test process, removed at its end.
const std::filesystem::path& scratch();
// Writes a file there and returns its path.
std::string write_scratch(const std::string& name, const std::string& text);

// A file of the source tree.
std::string source(const std::string& relative);

}  // namespace foresay::testing
