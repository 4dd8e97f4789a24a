// core/models/parallel_rows.h: a loop over the rows of a tensor on many threads.
//
// Threads:  uses all cores while it runs.
#pragma once

#include <algorithm>
#include <cstdint>
#include <thread>
#include <vector>

#include "base/signals.h"

namespace foresay::core {

// Calls work(begin, end) for ranges that cover [0, rows), each on a thread of its own. `work` must not throw.
template <class Work>
void parallel_rows(std::int64_t rows, const Work& work) {
    const std::int64_t parts = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, 64);
    std::vector<std::jthread> threads;
    {
        const SignalsBlocked blocked;
        for (std::int64_t i = 1; i < parts; ++i) {
            threads.emplace_back([&work, rows, i, parts] { work(rows * i / parts, rows * (i + 1) / parts); });
        }
    }
    work(std::int64_t{0}, rows / parts);
}

}  // namespace foresay::core
