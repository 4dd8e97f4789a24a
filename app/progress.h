// app/progress.h: one line on a terminal that says how far a long load has come.
//
// Appears only on a terminal and only once the work has taken longer than kPatience; removes itself at the end.
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
