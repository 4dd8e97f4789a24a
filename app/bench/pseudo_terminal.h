// app/bench/pseudo_terminal.h: runs this program on a pseudo-terminal, to measure the latencies that a user sees.
//
// Threads:  one caller.
// Errors:   Error if no terminal is available or the program does not respond in time.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace foresay::app {

class PseudoTerminal {
public:
    using Clock = std::chrono::steady_clock;

    // Starts `foresay ARGUMENTS` without colours and with `home` as its state folder.
    PseudoTerminal(const std::vector<std::string>& arguments, const std::string& home);
    ~PseudoTerminal();
    PseudoTerminal(const PseudoTerminal&) = delete;
    PseudoTerminal& operator=(const PseudoTerminal&) = delete;

    void type(std::string_view keys);
    // Forgets what was shown so far.
    void forget() { shown_.clear(); }
    const std::string& shown() const { return shown_; }
    // Reads until `enough` accepts the output so far. False after `patience`, or if the program ends.
    bool wait(const std::function<bool(const std::string& shown)>& enough, std::chrono::milliseconds patience);
    // Waits for `text`. Error if it does not appear.
    void expect(std::string_view text, std::chrono::milliseconds patience = std::chrono::seconds(60));

private:
    int terminal_ = -1;
    pid_t child_ = -1;
    std::string shown_;
};

}  // namespace foresay::app
