// plugins/host/crash_watch.h: names the plugin that ends the program or keeps it from ending, in one line on standard
// error, at the moment when it happens.
//
// Crashes:  SIGSEGV (also a stack overflow), SIGBUS, SIGILL, SIGFPE and SIGABRT while the thread is in a call into a
//           plugin, or at an instruction of a plugin's library, and an exception that must not leave it
//           (std::terminate). The plugin is marked in the crash marker, and the signal then does what it does without a
//           handler, so the exit status is the usual one.
// Exits:    exit() and quick_exit() in a call become status 1. _exit() calls no handler; the next start says that the
//           plugin was running (crash_marker.h).
// Hangs:    see name_hanging_plugin().
//
// Threads:  any. The handlers are for the whole process; the program decides whether it wants them.
#pragma once

#include <atomic>

namespace foresay::samplers {
struct PluginSite;
}

namespace foresay::plugins {

// Installs the handlers. `restore`, which must be safe in a signal handler, gives the terminal back before the program
// ends. Call it once, from the main thread.
void watch_for_crashes(void (*restore)());

// Makes the timer that name_hanging_plugin() needs, and handles its signal, SIGRTMIN + 3. Call it once.
void watch_for_hangs();

// A library was loaded, or is used by another host: `inside` is an address in it, `sites` are those of the library. Its
// crashes are named also in threads of its own. One caller at a time.
void watch_library(const void* inside, const samplers::PluginSite* sites);

// [signal] After an interrupt: if a plugin stays in the same call for a moment while `wanted` is set, says which one,
// and that another interrupt ends the program. Does nothing before watch_for_hangs().
void name_hanging_plugin(const std::atomic<bool>& wanted) noexcept;

// [signal] The program ends now, by the user's wish. Says which plugin was running, if any, which is then not to blame.
void end_running_plugin() noexcept;

}  // namespace foresay::plugins
