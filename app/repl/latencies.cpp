#include "app/repl/latencies.h"

#include <algorithm>
#include <cmath>

namespace foresay::app {

void Recent::add(double value) {
    last_ = value;
    if (values_.size() < kKept) {
        values_.push_back(value);
    } else {
        values_[next_] = value;
        next_ = (next_ + 1) % kKept;
    }
}

double Recent::quantile(double share) const {
    if (values_.empty()) return 0.0;
    std::vector<double> sorted = values_;
    std::sort(sorted.begin(), sorted.end());
    const double rank = std::ceil(share * static_cast<double>(sorted.size()));
    return sorted[std::clamp<std::size_t>(static_cast<std::size_t>(rank), 1, sorted.size()) - 1];
}

void Latencies::begin() {
    last_ = now_();
    waiting_ = true;
}

void Latencies::token() {
    const Clock::time_point now = now_();
    const double ms = std::chrono::duration<double, std::milli>(now - last_).count();
    (waiting_ ? first_ : gaps_).add(ms);
    waiting_ = false;
    last_ = now;
}

}  // namespace foresay::app
