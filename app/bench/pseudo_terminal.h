// app/bench/pseudo_terminal.h: this program on a terminal that nobody sees, to measure what a person would notice.
//
// Threads:  one caller.
// Errors:   Error when there is no terminal to be had or the program does not answer in time.
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

    // Starts `foresay ARGUMENTS` without colours and with `home` for what it remembers.
    PseudoTerminal(const std::vector<std::string>& arguments, const std::string& home);
    ~PseudoTerminal();
    PseudoTerminal(const PseudoTerminal&) = delete;
    PseudoTerminal& operator=(const PseudoTerminal&) = delete;

    void type(std::string_view keys);
    // Forgets what was shown so far.
    void forget() { shown_.clear(); }
    const std::string& shown() const { return shown_; }
    // Reads until `enough` is content with what was shown. False after `patience`, or when the program ends.
    bool wait(const std::function<bool(const std::string& shown)>& enough, std::chrono::milliseconds patience);
    // The same, or an Error that names what did not come.
    void expect(std::string_view text, std::chrono::milliseconds patience = std::chrono::seconds(60));

private:
    int terminal_ = -1;
    pid_t child_ = -1;
    std::string shown_;
};

}  // namespace foresay::app
