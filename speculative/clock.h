// speculative/clock.h: the clock that measures the costs of speculation. Simulations supply their own.
#pragma once

#include <chrono>

namespace foresay::speculative {

// Milliseconds on a clock that never goes back.
using Now = double (*)();

inline double steady_now() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace foresay::speculative
