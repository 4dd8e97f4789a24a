// app/edits/signal_delay.h: makes the signals that end the program wait.
//
// Life:     at most one at a time.
// Threads:  holds for every thread of the program.
#pragma once

#include <signal.h>

#include <array>

namespace foresay::app {

// While it exists, SIGINT, SIGTERM, SIGHUP and SIGQUIT are only noted. The destructor puts their handlers back and
// raises those that came.
class SignalDelay {
public:
    SignalDelay();
    ~SignalDelay();
    SignalDelay(const SignalDelay&) = delete;
    SignalDelay& operator=(const SignalDelay&) = delete;

private:
    std::array<struct sigaction, 4> before_{};
};

}  // namespace foresay::app
