// speculative/schedule_log.h: what the scheduler of a batch is told and what it decides, as lines of text. With them a
// run is decided again without models, step by step (tests/speculative/schedule_replay.h).
//
// Layout:   a line is words with a space between them. T is a ticket; a mark (!) means a decision, all else are facts:
//
//     batch PREFILL BESIDE DECODE MOST       rows as in ScheduleLimits; sequences that run at once; and the word
//                                            `mixes` after them, where a forward may have rows of both classes
//     add T PRIORITY QUEUE DEADLINE PROMPT   a request, its prompt in tokens
//     cancel T    pause T    resume T
//     step NOW                               a step begins; the clock, 0 where no sequence has a deadline
//   ! end T WHY                              before the forward: cancelled, deadline, or length where no token fits
//     gone T                                 it has ended, and holds no place any more
//   ! admit T HELD                           and tokens of its text that the cache has
//   ! wait T                                 it is next, and another one evaluates its beginning
//   ! full T                                 it is next, and there are no pages for it
//   ! preempt T                              pages lacked
//   ! replace T                              likewise, for one that waits: all that run are paused
//     loads PREFILL,DECODE ...               of those that run, in the order of admission
//   ! rows CLASS T:ROWS ...                  of the forward, without drafts; prefill, decode or mixed
//     ahead                                  in place of all decisions: the step before has begun the forward
//     ran T ROWS                             those of the forward, with drafts
//     took MS                                the forward
//
// The names of queues are not recorded, only which requests have the same: QUEUE counts them as they come.
// Cost:     nothing without a writer; with one it allocates, and the log remembers the names of all queues.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

namespace foresay::speculative {

// Receives a line without its end. Called within the calls of the batch; must not call back.
using ScheduleWriter = std::function<void(std::string_view line)>;

class ScheduleLog {
public:
    explicit ScheduleLog(ScheduleWriter writer) : writer_(std::move(writer)) {}
    bool active() const { return static_cast<bool>(writer_); }

    // Numbers are written so that reading them gives the same bits.
    template <typename... Words>
    void line(const Words&... words) {
        if (!active()) return;
        line_.clear();
        (word(words), ...);
        write();
    }

    // The same in parts: begin, add, write.
    void begin(std::string_view first) { line_ = first; }
    template <typename A, typename B>
    void pair(A first, char between, B second) {
        word(first);
        line_ += between;
        number(second);
    }
    void write() { writer_(line_); }

    std::uint64_t queue(const std::string& name) { return queues_.try_emplace(name, queues_.size()).first->second; }

private:
    template <typename T>
    void word(const T& value) {
        if (!line_.empty()) line_ += ' ';
        if constexpr (std::is_arithmetic_v<T>) {
            number(value);
        } else {
            line_ += value;
        }
    }
    void number(auto value) {
        char digits[32];
        line_.append(digits, std::to_chars(digits, digits + sizeof digits, value).ptr);
    }

    ScheduleWriter writer_;
    std::string line_;
    std::map<std::string, std::uint64_t> queues_;
};

}  // namespace foresay::speculative
