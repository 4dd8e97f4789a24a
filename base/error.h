// base/error.h: how foresay reports errors.
//
// Three channels, one mechanism each:
//   something outside is wrong (bad file, bad config)   throw Error; main() and the REPL catch it
//   a normal outcome (draft rejected)                   a return value; the decode loop throws nothing
//   a bug                                               check(), which prints the place and aborts
//
// Threads:  any.
// Errors:   an Error's text is one clear sentence: what, where, what to do.
#pragma once

#include <stdexcept>
#include <string>

namespace foresay {

// Something outside the program is wrong. what() is shown to the user as it is; the program exits with status 1.
class Error : public std::runtime_error {
public:
    using std::runtime_error::runtime_error;
};

// The command line is wrong. The program exits with status 2.
class UsageError : public Error {
public:
    using Error::Error;
};

// Prints `message` with its place and aborts. For broken invariants only: no user input and no file may trigger it. The
// defaults are the caller's place; std::source_location needs a newer compiler than the fuzzers are built with.
[[noreturn]] void bug(const char* message, const char* file = __builtin_FILE(), int line = __builtin_LINE());

inline void check(bool condition, const char* message, const char* file = __builtin_FILE(),
                  int line = __builtin_LINE()) {
    if (!condition) bug(message, file, line);
}

}  // namespace foresay
