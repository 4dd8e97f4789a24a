// app/repl/read_ahead.h: work on what is being typed, before it is entered, in a thread of its own.
//
// What is entered in the end may be something else: the work must be of a kind that is then merely wasted. Here it is
// the evaluation of a prompt's first tokens, which the cache keeps as far as they are the prompt's.
//
// Threads:  the caller's one, and one inside. From text() on what `work` uses is the inner thread's, until stop().
// Errors:   what `work` throws is kept until failure() is asked for. A device that failed once may work when the text
//           is entered, and then only this tells.
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
    // Looks at `cancel` often and returns soon after it became true.
    using Work = std::function<void(const std::string& text, const std::atomic<bool>& cancel)>;
    explicit ReadAhead(Work work);
    ~ReadAhead();
    ReadAhead(const ReadAhead&) = delete;
    ReadAhead& operator=(const ReadAhead&) = delete;

    // Works on `text` when it is done with what it is at. Returns at once.
    void text(std::string text);
    // Forgets what is left and waits until nothing is being done.
    void stop();
    // What `work` threw first since the last call; empty: nothing. Takes it away.
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
