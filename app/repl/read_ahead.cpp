#include "app/repl/read_ahead.h"

#include <exception>
#include <utility>

#include "base/signals.h"

namespace foresay::app {

ReadAhead::ReadAhead(Work work) : work_(std::move(work)) {
    const SignalsBlocked blocked;  // the main thread handles them
    thread_ = std::thread([this] { run(); });
}

ReadAhead::~ReadAhead() {
    stop();
    {
        const std::lock_guard lock(mutex_);
        done_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void ReadAhead::text(std::string text) {
    {
        const std::lock_guard lock(mutex_);
        next_ = std::move(text);
    }
    changed_.notify_all();
}

void ReadAhead::stop() {
    std::unique_lock lock(mutex_);
    next_.reset();
    cancel_ = true;
    changed_.wait(lock, [this] { return !busy_; });
    cancel_ = false;
}

std::string ReadAhead::failure() {
    const std::lock_guard lock(mutex_);
    return std::exchange(failure_, {});
}

void ReadAhead::run() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return done_ || next_; });
        if (done_) return;
        const std::string text = *std::exchange(next_, std::nullopt);
        busy_ = true;
        lock.unlock();
        std::string problem;
        try {
            work_(text, cancel_);
        } catch (const std::exception& error) {
            problem = error.what();
        }
        lock.lock();
        if (failure_.empty()) failure_ = std::move(problem);
        busy_ = false;
        changed_.notify_all();
    }
}

}  // namespace foresay::app
