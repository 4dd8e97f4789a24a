// app/interrupt.h: Ctrl-C as a flag that generation polls, and the signals that ask the program to end.
//
// The first SIGINT sets the flag; a second one while the flag is still set ends the process at once (status 130), so
// that the user can always get out. SIGTERM, SIGHUP and SIGXCPU end the process at once, unless there is something to
// save: while an EndGently exists they set the flag as well, and the process ends when its work is saved, or after
// kSecondsToEnd if that takes longer. It always ends by the signal, so its parent sees status 128 + signal.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstddef>

namespace foresay::app {

// Installs handlers for SIGINT, SIGQUIT and the signals above. Ignores SIGPIPE and SIGXFSZ, so that write(2) fails with
// EPIPE and EFBIG instead. Opens the standard streams that are closed, so that no other file takes their numbers.
void catch_signals();

// Set by Ctrl-C and by a request to end. The code that handles the interrupt clears it.
std::atomic<bool>& interrupted();

// Whether a signal has asked the program to end while an EndGently existed. Stays true.
bool asked_to_end();
// Ends the process by that signal; returns if there was none.
void end_if_asked();

// read(2), which a signal that sets the flag ends even if it came before the call: it fails with EINTR then. Other
// signals end it, too, once it waits.
ssize_t read_unless_interrupted(int descriptor, char* bytes, std::size_t size);

// While it exists, a request to end leaves the program kSecondsToEnd to save its work. At most one at a time.
class EndGently {
public:
    EndGently();
    ~EndGently();
    EndGently(const EndGently&) = delete;
    EndGently& operator=(const EndGently&) = delete;
};

inline constexpr unsigned kSecondsToEnd = 5;
inline constexpr int kCancelled = 130;  // exit status

}  // namespace foresay::app
