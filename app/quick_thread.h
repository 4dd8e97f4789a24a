// app/quick_thread.h: low wake-up latency for threads that run briefly while others compute on every core.
#pragma once

namespace foresay::app {

// Asks the scheduler for a short time slice, so that the calling thread runs soon after it wakes; false restores the
// default. Its share of CPU time does not change. Linux before 6.12 ignores the request.
void run_at_once(bool wanted);

}  // namespace foresay::app
