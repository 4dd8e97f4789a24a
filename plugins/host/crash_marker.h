// plugins/host/crash_marker.h: finds out, at the next start, which plugin was running when a process died.
//
// Each process that loads plugins maps a small file, BASE.running.XXXXXX, with one slot per plugin: a counter that is
// above 0 while the plugin's code runs, and what a handler of a crash (crash_watch.h) leaves there. The file outlives
// the process, which holds a lock on it while it lives. The next start reads the files of dead processes:
// - a plugin that crashed is put on the list of barred builds, BASE.barred (bar_list.h);
// - a plugin that was running when the process ended without a crash (SIGKILL, a power cut, _exit) is only named,
//   because it may be innocent;
// - a plugin that was not running is of no interest.
//
// Threads:  the counters may be changed by any thread; the rest by one.
// Errors:   none. Where no file can be kept (no room, read-only, RLIMIT_FSIZE), the program goes on without it, and a
//           notice says so once per process.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "plugins/host/bar_list.h"

namespace foresay::samplers {
struct PluginSite;
}

namespace foresay::plugins {

class CrashMarker {
public:
    // `base` empty: keeps nothing and bars nothing. `runs`: plugins will run in this process; otherwise it keeps no
    // file.
    CrashMarker(std::filesystem::path base, bool runs);
    // Leaves the mapping in place, because plugins may outlive the marker, and removes the file.
    ~CrashMarker();
    CrashMarker(const CrashMarker&) = delete;
    CrashMarker& operator=(const CrashMarker&) = delete;

    // The counter of `plugin`; nullptr when no marker is kept. Valid until the process ends.
    std::atomic<std::uint32_t>* counter(const std::filesystem::path& plugin, const Build& build);

    BarList& barred() { return barred_; }
    const BarList& barred() const { return barred_; }
    // Sentences for the user about what the last processes left and what cannot be kept. They begin in lower case and
    // have no full stop.
    const std::vector<std::string>& notices() const { return notices_; }

private:
    void read_dead_markers();
    bool take_up(int handle);
    int try_to_create();
    void create();
    void notice_once(const std::string& what, const std::string& why);

    std::filesystem::path base_;
    bool runs_;
    std::filesystem::path own_;
    int lock_ = -1;  // the own file, open as long as the process lives or the marker exists
    void* memory_ = nullptr;
    BarList barred_;
    std::vector<std::string> notices_;
};

// [signal] Records in the slot of the site's plugin that it crashed. False: no marker is kept, so nothing remembers it.
bool mark_crash(const samplers::PluginSite& site, const char* how) noexcept;

// [signal] If `address` lies in the marker's mapping, which its file can no longer back, replaces the mapping by memory
// that is not a file. Returns whether it did: the access may then be repeated.
bool give_up_marker(const void* address) noexcept;

// In a child of the program that runs a sampler of its own: what happens there is no news for the program's markers.
void give_up_markers() noexcept;

// [signal] This process ends because it was told to, or the user knows why: no plugin is to blame for its end.
void absolve_plugins() noexcept;

}  // namespace foresay::plugins
