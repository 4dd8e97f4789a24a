// app/interrupt.h: Ctrl-C as a flag that generation polls.
//
// The first interrupt sets the flag; a second one while the flag is still set ends the process at once (status 130), so
// that the user can always get out. SIGTERM and SIGHUP end the process at once.
#pragma once

#include <atomic>

namespace foresay::app {

// Installs handlers for SIGINT, SIGTERM and SIGHUP, and ignores SIGPIPE, so that write(2) fails with EPIPE instead.
void catch_signals();

// Set by Ctrl-C. The code that handles the interrupt clears it.
std::atomic<bool>& interrupted();

inline constexpr int kCancelled = 130;  // exit status

}  // namespace foresay::app
