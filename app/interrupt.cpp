#include "app/interrupt.h"

#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "app/terminal.h"
#include "plugins/host/crash_marker.h"
#include "plugins/host/crash_watch.h"

namespace foresay::app {

namespace {

std::atomic<bool> flag{false};
static_assert(std::atomic<bool>::is_always_lock_free, "the flag is set in a signal handler");

// Ends the process as the signal would have, but first clears the crash marker: the plugin that is running has not
// crashed.
void on_request_to_end(int signal) {
    const int before = errno;
    plugins::absolve_plugins();
    give_terminal_back();
    std::signal(signal, SIG_DFL);
    std::raise(signal);  // takes effect when this returns
    errno = before;
}

void on_interrupt(int) {
    if (!flag.exchange(true)) {
        plugins::name_hanging_plugin(flag);
        return;
    }
    plugins::end_running_plugin();
    give_terminal_back();
    ::_exit(kCancelled);
}

}  // namespace

void catch_signals() {
    struct sigaction action {};
    action.sa_handler = on_interrupt;
    sigemptyset(&action.sa_mask);
    action.sa_flags = 0;  // no SA_RESTART: a read that waits for a key must return
    sigaction(SIGINT, &action, nullptr);
    action.sa_handler = on_request_to_end;
    for (const int signal : {SIGTERM, SIGHUP}) {
        struct sigaction before {};
        sigaction(signal, nullptr, &before);
        if (before.sa_handler != SIG_IGN) sigaction(signal, &action, nullptr);  // keeps nohup working
    }
    plugins::watch_for_hangs();
#ifndef FORESAY_SANITIZED  // a sanitizer reports crashes itself
    plugins::watch_for_crashes(give_terminal_back);
#endif
    std::signal(SIGPIPE, SIG_IGN);
}

std::atomic<bool>& interrupted() { return flag; }

}  // namespace foresay::app
