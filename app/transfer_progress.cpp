#include "app/transfer_progress.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "app/output.h"
#include "app/terminal.h"
#include "speculative/memory_estimate.h"

namespace foresay::app {

namespace {

constexpr std::chrono::milliseconds kBetweenLines{200}, kFirstRate{500};
constexpr std::size_t kWidestBar = 30, kNarrowestBar = 8;
constexpr double kLongest = 100 * 3600;  // seconds; longer is no estimate

}  // namespace

void TransferRate::update(std::int64_t done, Clock::time_point now) {
    if (!samples_.empty() && done < samples_.back().done) samples_.clear();
    samples_.push_back({now, done});
    // One sample older than the window stays, so that a transfer that stands still shows it.
    while (samples_.size() > 2 && now - samples_[1].time >= kWindow) samples_.pop_front();
}

std::optional<double> TransferRate::bytes_per_second() const {
    if (samples_.empty() || samples_.back().time - samples_.front().time < kFirstRate) return std::nullopt;
    const std::chrono::duration<double> time = samples_.back().time - samples_.front().time;
    return static_cast<double>(samples_.back().done - samples_.front().done) / time.count();
}

std::optional<double> TransferRate::seconds_left(std::int64_t all) const {
    const std::optional<double> rate = bytes_per_second();
    if (!rate || *rate <= 0) return std::nullopt;
    const double left = static_cast<double>(all - samples_.back().done) / *rate;
    return left < kLongest ? std::optional<double>(left) : std::nullopt;
}

std::string duration_text(double seconds) {
    const auto whole = static_cast<long long>(std::ceil(seconds));
    if (whole < 60) return std::to_string(whole) + " s";
    const long long minutes = (whole + 59) / 60;
    if (minutes < 60) return std::to_string(minutes) + " min";
    return std::to_string(minutes / 60) + " h " + std::to_string(minutes % 60) + " min";
}

TransferProgress::TransferProgress(std::string what) : what_(std::move(what)), enabled_(stderr_is_terminal()) {}

TransferProgress::~TransferProgress() { clear(); }

void TransferProgress::clear() {
    if (std::exchange(shown_, false)) say("\r\x1b[K");
    last_shown_ = {};
}

std::string TransferProgress::line(const std::string& what, std::int64_t done, std::int64_t all,
                                   const TransferRate& rate, std::size_t columns) {
    const int percent = all > 0 ? static_cast<int>(std::clamp<std::int64_t>(done * 100 / all, 0, 100)) : 100;
    std::string numbers = std::to_string(percent) + " % of " + speculative::format_bytes(all);
    if (const auto speed = rate.bytes_per_second()) {
        numbers += ", " + speculative::format_bytes(static_cast<std::int64_t>(*speed)) + "/s";
    }
    if (const auto left = rate.seconds_left(all); left && *left > 0) numbers += ", " + duration_text(*left) + " left";
    std::string text = what;
    // The name gives way before the numbers do, and the bar before both. A full line would wrap.
    const std::size_t most = columns > 1 ? columns - 1 : 0;
    if (text.size() + numbers.size() + 1 > most) {
        const std::size_t room = most > numbers.size() + 4 ? most - numbers.size() - 4 : 0;
        text = room == 0 ? "" : "..." + text.substr(text.size() - std::min(room, text.size()));
    }
    const std::size_t used = text.size() + numbers.size() + 4;
    if (used + kNarrowestBar <= most) {
        const std::size_t width = std::min(kWidestBar, most - used);
        const std::size_t full = static_cast<std::size_t>(percent) * width / 100;
        return text + " [" + std::string(full, '#') + std::string(width - full, '.') + "] " + numbers;
    }
    return (text.empty() ? "" : text + " ") + numbers.substr(0, most);
}

void TransferProgress::update(std::int64_t done, std::int64_t all) {
    const auto now = TransferRate::Clock::now();
    rate_.update(done, now);
    if (!enabled_ || now - last_shown_ < kBetweenLines) return;
    last_shown_ = now;
    shown_ = true;
    say("\r\x1b[K" + dim(line(what_, done, all, rate_, terminal_columns())));
}

bool TransferProgress::due() {
    const auto now = TransferRate::Clock::now();
    if (now - last_due_ < std::chrono::seconds(1)) return false;
    last_due_ = now;
    return true;
}

}  // namespace foresay::app
