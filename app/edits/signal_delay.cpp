#include "app/edits/signal_delay.h"

#include <atomic>

namespace foresay::app {

namespace {

constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};
static_assert(std::atomic<int>::is_always_lock_free, "it is changed in a signal handler");
std::array<std::atomic<int>, kSignals.size()> came{};

void note(int signal) {
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
        if (kSignals[i] == signal) came[i].fetch_add(1);
    }
}

}  // namespace

SignalDelay::SignalDelay() {
    struct sigaction action {};
    action.sa_handler = note;
    sigemptyset(&action.sa_mask);
    action.sa_flags = SA_RESTART;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
        came[i] = 0;
        ::sigaction(kSignals[i], nullptr, &before_[i]);
        if (before_[i].sa_handler != SIG_IGN) ::sigaction(kSignals[i], &action, nullptr);
    }
}

SignalDelay::~SignalDelay() {
    for (std::size_t i = 0; i < kSignals.size(); ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
        for (int times = came[i]; times > 0; --times) ::raise(kSignals[i]);
    }
}

}  // namespace foresay::app
