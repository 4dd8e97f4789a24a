#include "app/progress.h"

#include <algorithm>
#include <utility>

#include "app/output.h"
#include "speculative/memory_estimate.h"

namespace foresay::app {

namespace {
constexpr std::size_t kBarWidth = 30;
}

Progress::Progress(std::string what) : what_(std::move(what)), enabled_(stderr_is_terminal()) {}

Progress::~Progress() {
    if (shown_) say("\r\x1b[K");
}

void Progress::update(std::int64_t done, std::int64_t all) {
    if (!enabled_ || std::chrono::steady_clock::now() - start_ < kPatience) return;
    const int percent = all > 0 ? static_cast<int>(std::clamp<std::int64_t>(done * 100 / all, 0, 100)) : 0;
    if (percent == percent_) return;
    percent_ = percent;
    shown_ = true;
    const auto full = static_cast<std::size_t>(percent * kBarWidth / 100);
    const std::string bar = "[" + std::string(full, '#') + std::string(kBarWidth - full, '.') + "]";
    say("\r\x1b[K" +
        dim(what_ + " " + bar + " " + std::to_string(percent) + " % of " + speculative::format_bytes(all)));
}

}  // namespace foresay::app
