// app/progress.h: a progress line for long loads.
//
// Shown only on a terminal, and only once the work has taken longer than kPatience. The destructor removes it.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace foresay::app {

class Progress {
public:
    static constexpr std::chrono::milliseconds kPatience{400};

    explicit Progress(std::string what);
    ~Progress();
    Progress(const Progress&) = delete;
    Progress& operator=(const Progress&) = delete;

    void update(std::int64_t done, std::int64_t all);  // bytes

private:
    std::string what_;
    bool enabled_;
    bool shown_ = false;
    int percent_ = -1;
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

}  // namespace foresay::app
