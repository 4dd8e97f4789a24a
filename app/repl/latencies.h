// app/repl/latencies.h: how long the user waits: for the first token, and from one token to the next.
//
// Tokens that one verification accepts arrive together, so gaps between tokens are either tiny or a whole round.
// Cost:     token() reads a clock. The newest kKept values are kept, and nothing is allocated after the constructor.
#pragma once

#include <chrono>
#include <cstddef>
#include <vector>

namespace foresay::app {

// The newest values of a series.
class Recent {
public:
    static constexpr std::size_t kKept = 8192;
    Recent() { values_.reserve(kKept); }
    void add(double value);
    std::size_t count() const { return values_.size(); }
    double last() const { return last_; }
    // The smallest value that at least `share` of the values do not exceed; 0 without values.
    double quantile(double share) const;

private:
    std::vector<double> values_;
    std::size_t next_ = 0;
    double last_ = 0.0;
};

class Latencies {
public:
    using Clock = std::chrono::steady_clock;
    // `now`: the clock, for tests.
    explicit Latencies(Clock::time_point (*now)() = Clock::now) : now_(now) {}

    // The user has pressed Enter, or closed an editor: from now on it is the model that is waited for.
    void begin();
    bool waiting() const { return waiting_; }  // no token has come since
    // A token has come.
    void token();
    const Recent& first_ms() const { return first_; }
    const Recent& gap_ms() const { return gaps_; }

private:
    Clock::time_point (*now_)();
    Clock::time_point last_;
    bool waiting_ = false;  // for the first token
    Recent first_, gaps_;
};

}  // namespace foresay::app
