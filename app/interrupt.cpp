#include "app/interrupt.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>

#include "app/terminal.h"
#include "base/signals.h"
#include "plugins/host/crash_marker.h"
#include "plugins/host/crash_watch.h"

namespace foresay::app {

namespace {

std::atomic<bool> flag{false};
std::atomic<bool> gently{false};
std::atomic<int> signal_to_end_by{0};  // 0: none came while `gently`
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free,
              "they are set in a signal handler");

// Ends the process as the signal would have, but first clears the crash marker: a plugin that is running has not
// crashed. Safe in a signal handler.
void end_by(int signal) {
    plugins::absolve_plugins();
    give_terminal_back();
    std::signal(signal, SIG_DFL);
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, signal);
    pthread_sigmask(SIG_UNBLOCK, &only, nullptr);
    std::raise(signal);
}

void on_request_to_end(int signal) {
    if (!gently) return end_by(signal);
    // A window that closes sends SIGHUP more than once, so only the first request starts the clock.
    int none = 0;
    if (signal_to_end_by.compare_exchange_strong(none, signal)) ::alarm(kSecondsToEnd);
    flag = true;
}

// The time to end is over. An alarm that was set by another, before the program was executed, does what it usually
// does.
void on_alarm(int signal) {
    const int asked = signal_to_end_by;
    if (asked != 0) plugins::end_running_plugin();  // says which one did not return
    end_by(asked != 0 ? asked : signal);
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

void handle(int signal, void (*handler)(int), bool even_if_ignored) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    if (before.sa_handler == SIG_IGN && !even_if_ignored) return;  // keeps nohup working
    struct sigaction action {};
    action.sa_handler = handler;
    sigemptyset(&action.sa_mask);
    action.sa_flags = 0;  // no SA_RESTART: a read that waits for a key must return
    sigaction(signal, &action, nullptr);
}

// A closed standard stream would give its number to the next file that is opened, a session for example, and what is
// printed would go there. These descriptors fail as a closed one does.
void open_closed_streams() {
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
        if (::fcntl(stream, F_GETFD) >= 0 || errno != EBADF) continue;
        // open() takes the lowest free number, which is `stream`.
        static_cast<void>(::open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY));
    }
}

}  // namespace

void catch_signals() {
    open_closed_streams();
    handle(SIGINT, on_interrupt, true);
    for (const int signal : {SIGTERM, SIGHUP, SIGXCPU}) handle(signal, on_request_to_end, false);
    handle(SIGQUIT, end_by, false);
    handle(SIGALRM, on_alarm, true);
    plugins::watch_for_hangs();
#ifndef FORESAY_SANITIZED  // a sanitizer reports crashes itself
    plugins::watch_for_crashes(give_terminal_back);
#endif
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGXFSZ, SIG_IGN);
}

std::atomic<bool>& interrupted() { return flag; }

bool asked_to_end() { return signal_to_end_by != 0; }

void end_if_asked() {
    if (const int signal = signal_to_end_by) end_by(signal);
}

ssize_t read_unless_interrupted(int descriptor, char* bytes, std::size_t size) {
    // Signals are let in only while ppoll() waits: one between the look at the flag and the wait would be missed.
    const SignalsBlocked blocked;
    pollfd input{descriptor, POLLIN, 0};
    errno = EINTR;
    if (flag || ::ppoll(&input, 1, nullptr, &blocked.before()) < 0) return -1;
    return ::read(descriptor, bytes, size);
}

EndGently::EndGently() { gently = true; }
EndGently::~EndGently() { gently = false; }

}  // namespace foresay::app
