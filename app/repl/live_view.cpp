// The view of an answer on a terminal.
//
// Two threads. The generating one calls add() with each token's text and never waits: it appends to `unsent_` and,
// where the lock is free, moves that to `inbox_`. The terminal's thread owns standard output, standard input and
// `screen_`: once a frame it empties the inbox, shows the tokens that are due, and in between it shows keys as they are
// typed. Verification accepts several tokens at once; they are spread over the time until the next ones are expected.
#include <poll.h>
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
#include "base/signals.h"
#include "core/text/utf8.h"

namespace foresay::app {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;
using std::chrono::milliseconds;

// Tokens that arrive within this time are one burst: what one verification accepted.
constexpr microseconds kOneBurst{3000};
// The last token of a burst is shown at most this long after it arrived.
constexpr microseconds kLongestDelay{60'000};
// How often the inbox is emptied. A shorter frame would slow the computation and be no smoother to the eye.
constexpr microseconds kFrame{12'000};
constexpr milliseconds kIdleFrame{200};  // the same while there is no text yet

// When each token of a burst is due, so that tokens appear evenly.
class BurstSchedule {
public:
    // `pieces` more have arrived. Returns whether they begin a new burst.
    bool arrived(Clock::time_point now, std::size_t pieces) {
        const auto since = std::chrono::duration_cast<microseconds>(now - start_);
        const bool new_burst = count_ == 0 || since > kOneBurst;
        if (new_burst) {
            if (count_ > 0) interval_ = (3 * interval_ + std::min(since, kLongestDelay)) / 4;
            start_ = now;
            count_ = 0;
        }
        count_ += pieces;
        return new_burst;
    }
    // When piece `index` of the burst is to be shown.
    Clock::time_point due(std::size_t index) const {
        return start_ + interval_ * static_cast<std::int64_t>(index) / static_cast<std::int64_t>(count_);
    }

private:
    Clock::time_point start_;        // of the burst
    microseconds interval_{20'000};  // between bursts, smoothed
    std::size_t count_ = 0;
};

std::int64_t thread_cpu_time_ns() {
    timespec spent{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &spent);
    return std::int64_t{spent.tv_sec} * 1'000'000'000 + spent.tv_nsec;
}

class LiveView : public AnswerView {
public:
    LiveView(Keyboard& keyboard, LiveViewOptions options)
        : keyboard_(keyboard),
          tint_(options.tint),
          highlighter_(std::move(options.highlighter)),
          screen_(terminal_columns(), colourful_output(), terminal_rows()) {
        wake_event_ = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        check(wake_event_ >= 0, "there is always an event descriptor left");
        const SignalsBlocked blocked;  // the main thread handles them
        thread_ = std::thread([this] { terminal_thread(); });
    }
    ~LiveView() override {
        stop();
        ::close(wake_event_);
    }
    LiveView(const LiveView&) = delete;
    LiveView& operator=(const LiveView&) = delete;

    // Never waits: what cannot be sent now goes with the next token. Only the first text wakes the terminal's thread;
    // waking it for each token would take a core from the computation, and it looks again within a frame.
    void add(std::string_view text, bool drafted) override {
        if (failed_.load(std::memory_order_relaxed)) finish();
        if (text.empty()) return;
        const std::int64_t start = thread_cpu_time_ns();
        unsent_.text += text;
        unsent_.pieces.push_back({text.size(), drafted});
        send(std::unique_lock(mutex_, std::try_to_lock));
        if (!has_text_) wake();
        has_text_ = true;
        adding_ns_ += thread_cpu_time_ns() - start;
    }

    void reason(std::string_view text) override {
        if (failed_.load(std::memory_order_relaxed)) finish();
        const std::int64_t start = thread_cpu_time_ns();
        unsent_.reasoning += text;
        ++unsent_.reasoned;
        send(std::unique_lock(mutex_, std::try_to_lock));
        if (!has_text_) wake();
        has_text_ = true;
        adding_ns_ += thread_cpu_time_ns() - start;
    }

    void finish() override {
        if (thread_.joinable()) send(std::unique_lock(mutex_));
        stop();
        if (problem_) std::rethrow_exception(std::exchange(problem_, nullptr));
    }

    bool line_open() const override { return screen_.line_open(); }
    double cost_ms() const override { return static_cast<double>(adding_ns_ + showing_ns_) / 1e6; }

private:
    // The text of one token.
    struct Piece {
        std::size_t bytes;
        bool drafted;
    };
    struct Pieces {
        std::string text;
        std::vector<Piece> pieces;
        std::string reasoning;     // before the text
        std::size_t reasoned = 0;  // its tokens

        bool empty() const { return pieces.empty() && reasoned == 0; }
        void append(const Pieces& more) {
            reasoning += more.reasoning;
            reasoned += more.reasoned;
            text += more.text;
            pieces.insert(pieces.end(), more.pieces.begin(), more.pieces.end());
        }
        void clear() {
            text.clear();
            pieces.clear();
            reasoning.clear();
            reasoned = 0;
        }
    };

    // ---- the generating thread
    void send(const std::unique_lock<std::mutex>& lock) {
        if (!lock || unsent_.empty()) return;
        inbox_.append(unsent_);
        unsent_.clear();
        answering_ = true;
    }
    void wake() {
        const std::uint64_t one = 1;
        const ssize_t ignored = ::write(wake_event_, &one, sizeof one);
        static_cast<void>(ignored);  // an event cannot overflow
    }
    void stop() {
        if (!thread_.joinable()) return;
        stopping_ = true;
        wake();
        thread_.join();
    }

    // ---- the terminal's thread
    void terminal_thread() {
        run_at_once(true);  // so that keys are shown although every core computes
        try {
            write(screen_.show_typed(typed_look(keyboard_.ahead())));
            while (!stopping_) {
                wait();
                receive();
                show(Clock::now());
            }
            receive();
            end_reasoning();
            show(Clock::time_point::max());
            if (highlighter_ && !tint_) {
                Runs rest;
                highlighter_->finish(rest);
                write(screen_.add_code(rest, {}));
            }
            write(screen_.finish());
            showing_ns_ = thread_cpu_time_ns();
        } catch (...) {
            problem_ = std::current_exception();
            failed_ = true;
        }
    }

    // Until a key, a wake-up or the next frame.
    void wait() {
        const std::chrono::nanoseconds most = answering_ ? std::chrono::nanoseconds(kFrame) : kIdleFrame;
        const timespec timeout{most.count() / 1'000'000'000, most.count() % 1'000'000'000};
        std::array<pollfd, 2> wait{{{wake_event_, POLLIN, 0}, {reads_keys_ ? STDIN_FILENO : -1, POLLIN, 0}}};
        ::ppoll(wait.data(), wait.size(), &timeout, nullptr);
        if (wait[1].revents != 0) read_keys();
        if (wait[0].revents != 0) {
            std::uint64_t count = 0;
            const ssize_t ignored = ::read(wake_event_, &count, sizeof count);
            static_cast<void>(ignored);
        }
        if (keyboard_.take_change()) renew_terminal_mode();
        screen_.resize(terminal_columns(), terminal_rows());
    }

    // Shows keys at once and keeps them for the next prompt.
    void read_keys() {
        std::array<char, 4096> chunk{};
        const ssize_t got = ::read(STDIN_FILENO, chunk.data(), chunk.size());
        if (got > 0) {
            keyboard_.type_ahead({chunk.data(), static_cast<std::size_t>(got)});
            write(screen_.show_typed(typed_look(keyboard_.ahead())));
        } else if (got == 0 || (errno != EINTR && errno != EAGAIN)) {
            reads_keys_ = false;
        }
    }

    // Empties the inbox.
    void receive() {
        const std::lock_guard lock(mutex_);
        if (inbox_.empty()) return;
        if (inbox_.reasoned > 0) grow_reasoning();
        if (inbox_.pieces.empty()) return inbox_.clear();
        end_reasoning();
        if (schedule_.arrived(Clock::now(), inbox_.pieces.size())) {
            show_until(burst_.pieces.size());  // the view lags by one burst at most
            burst_.clear();
            next_piece_ = next_byte_ = 0;
        }
        burst_.append(inbox_);
        inbox_.clear();
    }

    // The end of the reasoning, on the line that the answer will begin on. Reasoning within an answer is only counted.
    void grow_reasoning() {
        constexpr std::size_t kMost = 1024;  // bytes, of which one line shows the last
        reasoned_ += inbox_.reasoned;
        reasoning_ += inbox_.reasoning;
        if (reasoning_.size() > kMost) reasoning_.erase(0, reasoning_.size() - kMost);
        if (screen_.line_open()) return;
        std::string line = printable(core::to_valid_utf8(reasoning_));
        std::ranges::replace_if(
            line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
        constexpr std::string_view kHead = "Reasoning: ";
        const std::size_t columns = terminal_columns();
        if (columns < kHead.size() + 8) return;
        write("\r" + dim(std::string(kHead) + std::string(tail(line, columns - kHead.size() - 1))) + "\x1b[K\r");
        reasoning_shown_ = true;
    }
    void end_reasoning() {
        if (std::exchange(reasoning_shown_, false)) {
            const char* const begin = colourful_output() ? "\x1b[2m" : "";
            const char* const end = colourful_output() ? "\x1b[0m" : "";
            write("\r\x1b[K");
            write(begin + screen_.add(reasoning_line(reasoned_), false) + end);
            write(screen_.add("\n", false));
        }
        reasoning_.clear();
        reasoned_ = 0;
    }

    // Shows the pieces that are due.
    void show(Clock::time_point now) {
        std::size_t end = next_piece_;
        while (end < burst_.pieces.size() && schedule_.due(end) <= now) ++end;
        show_until(end);
    }

    void show_until(std::size_t end) {
        if (highlighter_ && !tint_) return show_code_until(end);
        std::string out;
        while (next_piece_ < end) {
            // Neighbours of one colour are written together.
            const bool drafted = burst_.pieces[next_piece_].drafted;
            std::size_t bytes = 0;
            for (; next_piece_ < end && burst_.pieces[next_piece_].drafted == drafted; ++next_piece_)
                bytes += burst_.pieces[next_piece_].bytes;
            out += screen_.add(printable(std::string_view(burst_.text).substr(next_byte_, bytes)), drafted && tint_);
            next_byte_ += bytes;
        }
        write(out);
    }

    void show_code_until(std::size_t end) {
        if (next_piece_ >= end) return;
        std::size_t bytes = 0;
        for (; next_piece_ < end; ++next_piece_) bytes += burst_.pieces[next_piece_].bytes;
        Runs runs;
        highlighter_->add(printable(std::string_view(burst_.text).substr(next_byte_, bytes)), runs);
        next_byte_ += bytes;
        write(screen_.add_code(runs, highlighter_->undecided()));
    }

    static void write(const std::string& bytes) {
        if (!bytes.empty()) print(bytes);
    }

    Keyboard& keyboard_;
    bool tint_;
    std::optional<Highlighter> highlighter_;  // the terminal's thread's
    int wake_event_ = -1;
    std::thread thread_;

    // The generating thread's.
    Pieces unsent_;
    bool has_text_ = false;
    std::int64_t adding_ns_ = 0;  // CPU time

    // Both threads'.
    std::mutex mutex_;
    Pieces inbox_;  // under mutex_
    std::atomic<bool> answering_{false}, stopping_{false}, failed_{false};

    // The terminal's thread's, and the other's after it has ended.
    ScreenText screen_;
    Pieces burst_;
    std::string reasoning_;  // its end
    std::size_t reasoned_ = 0;
    bool reasoning_shown_ = false;
    std::size_t next_piece_ = 0;  // of burst_, to be shown next
    std::size_t next_byte_ = 0;   // where its text begins
    BurstSchedule schedule_;
    bool reads_keys_ = true;       // false after the end of standard input
    std::int64_t showing_ns_ = 0;  // CPU time
    std::exception_ptr problem_;   // what failed, before failed_ is set
};

}  // namespace

std::unique_ptr<AnswerView> make_live_view(Keyboard& keyboard, LiveViewOptions options) {
    return std::make_unique<LiveView>(keyboard, std::move(options));
}

}  // namespace foresay::app
