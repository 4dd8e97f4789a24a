// app/repl/read_ahead.h: works on an entry in its own thread while it is still being typed.
//
// The user may still change the entry, so the work must be such that it is merely wasted then. Here it evaluates the
// first tokens of the prompt; the KV cache keeps those that remain part of it.
//
// Threads:  one caller, and one thread inside. From text() until stop(), the inner thread owns what `work` uses.
// Errors:   an exception of `work` is kept until failure() is called. A device that failed here may work again when the
//           entry is sent; then failure() is the only sign.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace foresay::app {

class ReadAhead {
public:
    // Must check `cancel` often and return soon after it becomes true.
    using Work = std::function<void(const std::string& text, const std::atomic<bool>& cancel)>;
    explicit ReadAhead(Work work);
    ~ReadAhead();
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    // Starts work on `text` once the current work is done. Returns at once.
    void text(std::string text);
    // Drops pending work, cancels the current work and waits for it to end.
    void stop();
    // The first error of `work` since the last call, which clears it; empty if there was none.
    std::string failure();

private:
    void run();

    Work work_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::optional<std::string> next_;  // under mutex_, as the three below
    std::string failure_;
    bool busy_ = false;
    bool done_ = false;
    std::atomic<bool> cancel_{false};
    std::thread thread_;
};

}  // namespace foresay::app
