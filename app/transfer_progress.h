// app/transfer_progress.h: how far a transfer is: share, rate and the time that is left.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>

namespace foresay::app {

// The rate of the last seconds.
class TransferRate {
public:
    using Clock = std::chrono::steady_clock;
    static constexpr std::chrono::seconds kWindow{5};

    // `done` bytes are here at `now`. Fewer than before: the transfer has begun again.
    void update(std::int64_t done, Clock::time_point now);
    // Bytes per second; nothing in the first half second.
    std::optional<double> bytes_per_second() const;
    // Seconds until `all` bytes are here; nothing if that cannot be said.
    std::optional<double> seconds_left(std::int64_t all) const;

private:
    struct Sample {
        Clock::time_point time;
        std::int64_t done;
    };
    std::deque<Sample> samples_;
};

// "7 s", "12 min", "3 h 5 min".
std::string duration_text(double seconds);

// A line on standard error, if that is a terminal, a few times a second. The destructor removes it.
class TransferProgress {
public:
    explicit TransferProgress(std::string what);
    ~TransferProgress();
    TransferProgress(const TransferProgress&) = delete;
    TransferProgress& operator=(const TransferProgress&) = delete;

    void update(std::int64_t done, std::int64_t all);  // bytes
    // Removes the line, so that something else can be said; the next update shows it again.
    void clear();
    // The line as it would be shown.
    static std::string line(const std::string& what, std::int64_t done, std::int64_t all, const TransferRate& rate,
                            std::size_t columns);

    const TransferRate& rate() const { return rate_; }
    // True at most once a second.
    bool due();

private:
    const std::string what_;
    const bool enabled_;
    bool shown_ = false;
    TransferRate rate_;
    TransferRate::Clock::time_point last_shown_{}, last_due_{};
};

}  // namespace foresay::app
