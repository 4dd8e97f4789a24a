#include "app/repl/keyboard.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

#include "app/interrupt.h"
#include "base/signals.h"

namespace foresay::app {

namespace {

// Set by the signal handler, on any thread.
std::atomic<bool> resized{false}, continued{false};
static_assert(std::atomic<bool>::is_always_lock_free, "they are set in a signal handler");
void on_change(int signal) { (signal == SIGCONT ? continued : resized) = true; }

}  // namespace

Keyboard::Keyboard() {
    struct sigaction action {};
    action.sa_handler = on_change;
    sigemptyset(&action.sa_mask);
    action.sa_flags = 0;  // no SA_RESTART: a waiting read must return
    sigaction(SIGWINCH, &action, nullptr);
    sigaction(SIGCONT, &action, nullptr);
}

bool Keyboard::take(char& byte) {
    if (taken_ == ahead_.size()) return false;
    byte = ahead_[taken_++];
    if (taken_ == ahead_.size()) {
        ahead_.clear();
        taken_ = 0;
    }
    return true;
}

Keyboard::Wait Keyboard::changed() { return continued ? Wait::continued : resized ? Wait::resized : Wait::typed; }

Keyboard::Wait Keyboard::wait(int timeout_ms) {
    // Signals are unblocked only inside ppoll(): one that came between the check of its flag and the wait would be
    // missed.
    const SignalsBlocked blocked;
    Wait outcome = Wait::typed;
    if (interrupted()) {
        outcome = Wait::interrupted;
    } else if (continued || resized) {
        outcome = changed();
    } else {
        pollfd input{STDIN_FILENO, POLLIN, 0};
        const timespec timeout{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000L};
        const int ready = ::ppoll(&input, 1, timeout_ms < 0 ? nullptr : &timeout, &blocked.before());
        if (ready == 0) outcome = Wait::nothing;
        if (ready < 0) outcome = interrupted() ? Wait::interrupted : changed();
        if (ready > 0) {
            std::array<char, 4096> chunk{};
            const ssize_t got = ::read(STDIN_FILENO, chunk.data(), chunk.size());
            if (got > 0) ahead_.append(chunk.data(), static_cast<std::size_t>(got));
            if (got == 0 || (got < 0 && errno != EINTR && errno != EAGAIN)) outcome = Wait::end;
        }
    }
    if (outcome == Wait::continued) continued = resized = false;  // one redraw is enough for both
    if (outcome == Wait::resized) resized = false;
    return outcome;
}

void Keyboard::hold_ahead() {
    constexpr std::string_view kPasteStart = "\x1b[200~", kPasteEnd = "\x1b[201~";
    ahead_.erase(0, std::exchange(taken_, 0));
    std::string held;
    bool pasting = false;
    while (ahead_.ends_with('\r') || ahead_.ends_with('\n')) ahead_.pop_back();
    for (std::size_t i = 0; i < ahead_.size(); ++i) {
        const std::string_view rest = std::string_view(ahead_).substr(i);
        if (rest.starts_with(kPasteStart)) pasting = true;
        if (rest.starts_with(kPasteEnd)) pasting = false;
        const bool enter = ahead_[i] == '\r' || ahead_[i] == '\n';
        if (enter && !pasting && !held.ends_with('\x1b')) held += '\x1b';  // Alt-Enter
        held += ahead_[i];
    }
    ahead_ = std::move(held);
}

bool Keyboard::take_change() {
    const bool was_continued = continued.exchange(false);
    return resized.exchange(false) || was_continued;
}

Keyboard::Event Keyboard::next(char& byte, const std::function<void()>& pause) {
    bool paused = !pause;
    for (;;) {
        if (take(byte)) return Event::byte;
        switch (wait(paused ? -1 : static_cast<int>(kPause.count()))) {
            case Wait::typed:
                // The terminal drops what was typed before Ctrl-C, so these bytes came after it.
                if (interrupted()) return Event::interrupted;
                break;
            case Wait::nothing:
                paused = true;
                pause();
                break;
            case Wait::end:
                return Event::end;
            case Wait::interrupted:
                return Event::interrupted;
            case Wait::resized:
                return Event::resized;
            case Wait::continued:
                return Event::continued;
        }
    }
}

bool Keyboard::next_of_burst(char& byte) {
    for (;;) {
        if (take(byte)) return true;
        const Wait waited = wait(static_cast<int>(kBurst.count()));
        if (waited == Wait::nothing || waited == Wait::end || waited == Wait::interrupted) return false;
    }
}

}  // namespace foresay::app
