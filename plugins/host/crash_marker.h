// plugins/host/crash_marker.h: finds out, after a crash, which plugin was running.
//
// Each process that loads plugins maps a small file, BASE.PID, with a counter per plugin that is above 0 while the
// plugin's code runs. The file keeps the counters when the process dies, and the next start reads the files of dead
// processes. A plugin that was running when a crash signal came goes to BASE.quarantine, one path per line. A plugin
// that was running when the process died of something else, such as SIGKILL or a power cut, may be innocent: it goes to
// BASE.suspects, and to the quarantine when that happens twice in a row, because a plugin that hangs is killed every
// time. A process that ends well, or dies while its plugins are not running, clears them of suspicion.
//
// Threads:  the counters may be changed by any thread; the rest by one.
// Errors:   none. Without a writable folder no marker is kept.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace foresay::plugins {

class CrashMarker {
public:
    // `base` empty: keeps nothing.
    explicit CrashMarker(std::filesystem::path base);
    // Leaves the mapping in place, because plugins may outlive the marker, and removes the file.
    ~CrashMarker();
    CrashMarker(const CrashMarker&) = delete;
    CrashMarker& operator=(const CrashMarker&) = delete;

    // The counter of `plugin`; nullptr when no marker can be kept. Valid until the process ends.
    std::atomic<std::uint32_t>* counter(const std::filesystem::path& plugin);

    bool quarantined(const std::filesystem::path& plugin) const;
    // One sentence for the user about a plugin that was running when a process died; empty: there was none.
    const std::string& culprit() const { return culprit_; }
    std::filesystem::path quarantine_file() const;
    std::filesystem::path suspects_file() const;
    void forgive();

    struct Slot;  // of the mapped file

private:
    void read_dead_markers();
    void accuse(const std::string& path, bool crashed);
    void forget_suspect(const std::string& path);
    void clear_suspects();
    void create();

    std::filesystem::path base_;
    std::filesystem::path own_;
    Slot* slots_ = nullptr;
    std::vector<std::string> quarantined_, suspects_;
    std::string culprit_;
};

// Installs handlers for crash signals (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) that mark the running plugins before
// the process ends.
void watch_for_crashes();

// For signal handlers: this process ends because it was told to, so no plugin is to blame for its end.
void absolve_plugins() noexcept;

}  // namespace foresay::plugins
