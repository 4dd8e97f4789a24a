// The view of an answer on a terminal: a thread that writes and listens.
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <ctime>
#include <exception>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "app/output.h"
#include "app/quick_thread.h"
#include "app/repl/answer_view.h"
#include "app/repl/screen_text.h"
#include "app/terminal.h"
#include "base/error.h"

namespace foresay::app {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Tokens that come within this time are one burst: the rows of one verification.
constexpr microseconds kOneBurst{3000};
// The last token of a burst is shown at most so long after it came.
constexpr microseconds kLongestDelay{60'000};
// How often new text is looked for, and shown. More often costs the computation more than the eye gains.
constexpr microseconds kFrame{12'000};
constexpr milliseconds kLookAround{200};  // the same while there is no text yet

// When the pieces of bursts are due, so that they appear evenly.
class Pace {
public:
    // A burst of so many pieces has come, or more pieces of the last one. True: it is a new one.
    bool came(Clock::time_point now, std::size_t pieces) {
        const auto since = std::chrono::duration_cast<microseconds>(now - start_);
        const bool another = count_ == 0 || since > kOneBurst;
        if (another) {
            if (count_ > 0) interval_ = (3 * interval_ + std::min(since, kLongestDelay)) / 4;
            start_ = now;
            count_ = 0;
        }
        count_ += pieces;
        return another;
    }
    // Of the burst's piece `index`.
    Clock::time_point due(std::size_t index) const {
        return start_ + interval_ * static_cast<std::int64_t>(index) / static_cast<std::int64_t>(count_);
    }

private:
    Clock::time_point start_;
    microseconds interval_{20'000};  // between bursts, smoothed
    std::size_t count_ = 0;
};

std::int64_t thread_time_ns() {
    timespec spent{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return std::int64_t{spent.tv_sec} * 1'000'000'000 + spent.tv_nsec;
}

class LiveView : public AnswerView {
public:
    LiveView(Keyboard& keyboard, bool tint)
        : keyboard_(keyboard), tint_(tint), screen_(terminal_columns(), colourful_output()) {
        wake_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        check(wake_ >= 0, "there is always an event descriptor left");
        // Signals are the main thread's.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        thread_ = std::thread([this] { run(); });
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    ~LiveView() override {
        stop();
        ::close(wake_);
    }
    LiveView(const LiveView&) = delete;
    LiveView& operator=(const LiveView&) = delete;

    // Never waits: what cannot be handed over now goes with the next token. Only the first text wakes the other thread,
    // which would take the processor from the computation; it looks for the rest in time for the next frame.
    void add(std::string_view text, bool drafted) override {
        if (failed_.load(std::memory_order_relaxed)) finish();
        if (text.empty()) return;
        const std::int64_t start = thread_time_ns();
        added_.text += text;
        added_.pieces.push_back({text.size(), drafted});
        hand_over(std::unique_lock(mutex_, std::try_to_lock));
        if (!started_) wake();
        started_ = true;
        adding_ns_ += thread_time_ns() - start;
    }

    void finish() override {
        if (thread_.joinable()) hand_over(std::unique_lock(mutex_));
        stop();
        if (problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
    }

    bool line_open() const override { return screen_.line_open(); }
    double cost_ms() const override { return static_cast<double>(adding_ns_ + showing_ns_) / 1e6; }

private:
    struct Piece {
        std::size_t bytes;
        bool drafted;
    };
    struct Pieces {
        std::string text;
        std::vector<Piece> pieces;
    };

    void hand_over(const std::unique_lock<std::mutex>& lock) {
        if (!lock || added_.pieces.empty()) return;
        incoming_.text += added_.text;
        incoming_.pieces.insert(incoming_.pieces.end(), added_.pieces.begin(), added_.pieces.end());
        added_.text.clear();
        added_.pieces.clear();
        answering_ = true;
    }
    void wake() {
        const std::uint64_t one = 1;
        const ssize_t ignored = ::write(wake_, &one, sizeof one);
        static_cast<void>(ignored);  // an event cannot overflow
    }
    void stop() {
        if (!thread_.joinable()) return;
        done_ = true;
        wake();
        thread_.join();
    }

    void run() {
        run_at_once(true);  // keys are shown while every core computes
        try {
            write(screen_.show_typed(typed_look(keyboard_.ahead())));
            while (!done_) {
                wait();
                take();
                show(Clock::now());
            }
            take();
            show(Clock::time_point::max());
            write(screen_.finish());
            showing_ns_ = thread_time_ns();
        } catch (...) {
            problem_ = std::current_exception();
            failed_ = true;
        }
    }

    void wait() {
        const std::chrono::nanoseconds most = answering_ ? std::chrono::nanoseconds(kFrame) : kLookAround;
        const timespec timeout{most.count() / 1'000'000'000, most.count() % 1'000'000'000};
        std::array<pollfd, 2> wait{{{wake_, POLLIN, 0}, {listening_ ? STDIN_FILENO : -1, POLLIN, 0}}};
        ::ppoll(wait.data(), wait.size(), &timeout, nullptr);
        if (wait[1].revents != 0) listen();
        if (wait[0].revents != 0) {
            std::uint64_t count = 0;
            const ssize_t ignored = ::read(wake_, &count, sizeof count);
            static_cast<void>(ignored);
        }
        if (keyboard_.take_change()) renew_terminal_mode();
        screen_.resize(terminal_columns());
    }

    // Keys are shown at once.
    void listen() {
        std::array<char, 4096> chunk{};
        const ssize_t got = ::read(STDIN_FILENO, chunk.data(), chunk.size());
        if (got > 0) {
            keyboard_.type_ahead({chunk.data(), static_cast<std::size_t>(got)});
            write(screen_.show_typed(typed_look(keyboard_.ahead())));
        } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
            listening_ = false;
        }
    }

    // Takes over what the generating thread has added.
    void take() {
        const std::lock_guard lock(mutex_);
        if (incoming_.pieces.empty()) return;
        if (pace_.came(Clock::now(), incoming_.pieces.size())) {
            show_until(shown_.pieces.size());  // never more than one burst behind
            shown_.text.clear();
            shown_.pieces.clear();
            next_ = place_ = 0;
        }
        shown_.text += incoming_.text;
        shown_.pieces.insert(shown_.pieces.end(), incoming_.pieces.begin(), incoming_.pieces.end());
        incoming_.text.clear();
        incoming_.pieces.clear();
    }

    // Shows the pieces that are due.
    void show(Clock::time_point now) {
        std::size_t end = next_;
        while (end < shown_.pieces.size() && pace_.due(end) <= now) ++end;
        show_until(end);
    }

    void show_until(std::size_t end) {
        std::string out;
        while (next_ < end) {
            // Neighbours of one kind are written as one.
            const bool drafted = shown_.pieces[next_].drafted;
            std::size_t bytes = 0;
            for (; next_ < end && shown_.pieces[next_].drafted == drafted; ++next_) bytes += shown_.pieces[next_].bytes;
            out += screen_.add(printable(std::string_view(shown_.text).substr(place_, bytes)), drafted && tint_);
            place_ += bytes;
        }
        write(out);
    }

    static void write(const std::string& bytes) {
        if (!bytes.empty()) print(bytes);
    }

    Keyboard& keyboard_;
    bool tint_;
    ScreenText screen_;
    int wake_ = -1;
    std::mutex mutex_;
    Pieces added_;          // the generating thread's: not handed over yet
    bool started_ = false;  // the same: there was text
    Pieces incoming_;       // under mutex_
    std::atomic<bool> answering_{false}, done_{false}, failed_{false};
    std::exception_ptr problem_;
    std::int64_t adding_ns_ = 0;   // processor time of the generating thread
    std::int64_t showing_ns_ = 0;  // of the other one
    std::thread thread_;

    // The thread's own.
    Pieces shown_;
    std::size_t next_ = 0;   // piece that is shown next
    std::size_t place_ = 0;  // where its text begins
    Pace pace_;
    bool listening_ = true;
};

}  // namespace

std::unique_ptr<AnswerView> make_live_view(Keyboard& keyboard, bool tint) {
    return std::make_unique<LiveView>(keyboard, tint);
}

}  // namespace foresay::app
