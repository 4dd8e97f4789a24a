// app/interrupt.h: Ctrl-C as a flag that generations poll.
//
// The first interrupt sets the flag; a second one while the flag is still set ends the process at once (status 130), so
// that nothing can hang. A request to end (a closed terminal, kill) is obeyed at once.
#pragma once

#include <atomic>

namespace foresay::app {

// Catches SIGINT, SIGTERM and SIGHUP from now on, and ignores SIGPIPE: a closed reader shows as EPIPE.
void catch_signals();

// Set by Ctrl-C, cleared by whoever has dealt with it.
std::atomic<bool>& interrupted();

inline constexpr int kCancelled = 130;  // exit status

}  // namespace foresay::app
