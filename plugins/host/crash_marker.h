// plugins/host/crash_marker.h: finds out, after a crash, which plugin was running.
//
// Each process that loads plugins maps a small file, BASE.PID, with a counter per plugin that is above 0 while its code
// runs. A mapped file keeps what was written when its process dies. The next start reads the files of dead processes. A
// plugin that was running when a signal of a crash came goes to BASE.quarantine, one path per line. One that was
// running when the process died of something else, SIGKILL or a power cut, may only have been there when it happened:
// it goes to BASE.suspects, and to the quarantine when that happens twice in a row, for a plugin that hangs is killed
// every time. A process that ends well, or dies while they do not run, clears the plugins that it had loaded.
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
    // One sentence for a person, about what was found; empty when nothing was.
    const std::string& culprit() const { return culprit_; }
    std::filesystem::path quarantine_file() const;
    std::filesystem::path suspects_file() const;
    void forgive();

    struct Slot;  // of the mapped file

private:
    void examine_the_dead();
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

// Makes the signals of a crash (SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT) note that it was one before they end the
// process.
void watch_for_crashes();

// For signal handlers: this process ends because it was told to, so no plugin is to blame for its end.
void absolve_plugins() noexcept;

}  // namespace foresay::plugins
