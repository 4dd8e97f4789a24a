#include "app/interrupt.h"

#include <unistd.h>

#include <csignal>

namespace foresay::app {

namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "the flag is set in a signal handler");

void on_interrupt(int) {
    if (flag.exchange(true)) ::_exit(kCancelled);
}

}  // namespace

void catch_signals() {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    action.sa_flags = 0;  // no SA_RESTART: a read that waits for the keyboard must return
    sigaction(SIGINT, &action, nullptr);
    std::signal(SIGPIPE, SIG_IGN);
}

std::atomic<bool>& interrupted() { return flag; }

}  // namespace foresay::app
