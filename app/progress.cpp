#include "app/progress.h"

#include <algorithm>
#include <utility>

#include "app/output.h"

namespace foresay::app {

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
    say("\r\x1b[K" + dim(what_ + " " + std::to_string(percent) + " %"));
}

}  // namespace foresay::app
