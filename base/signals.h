// base/signals.h: which threads take signals.
#pragma once

#include <signal.h>

namespace foresay {

// While it exists, the calling thread takes no signals, and neither do the threads that it starts then for as long as
// they live: another thread of the process gets them, so its waits end. Faults such as SIGSEGV are not held back; their
// handlers run on the thread that caused them.
class SignalsBlocked {
public:
    SignalsBlocked() {
        sigset_t held;
        sigfillset(&held);
        for (const int fault : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&held, fault);
        pthread_sigmask(SIG_BLOCK, &held, &before_);
    }
    ~SignalsBlocked() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    SignalsBlocked(const SignalsBlocked&) = delete;
    SignalsBlocked& operator=(const SignalsBlocked&) = delete;

    // The signals that were blocked before: a wait with these alone, as ppoll() can, ends when a signal comes.
    const sigset_t& before() const { return before_; }

private:
    sigset_t before_;
};

}  // namespace foresay
