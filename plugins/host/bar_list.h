// plugins/host/bar_list.h: the builds of plugins that have crashed and are not loaded again, in a file.
//
// A bar holds for a file's contents, so that a rebuilt plugin is loaded and a copy under another name is not.
//
// File:     one bar per line: checksum, size, time, reason and path, separated by tabs; control characters and '%' in
//           the last two are written as %XX. Lines that do not read so are skipped.
// Threads:  one caller at a time. Other processes may add bars at any time; remove() can lose one that is added at the
//           same moment.
// Errors:   add() says what went wrong; remove() throws Error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace foresay::plugins {

// The contents of a plugin's file: size and CRC-64. Tells builds apart; it is no protection against forgery.
struct Build {
    std::uint64_t checksum = 0;
    std::uint64_t size = 0;
    bool operator==(const Build&) const = default;
};
Build build_of(std::span<const std::byte> contents);

struct Bar {
    Build build;
    std::int64_t since_s = 0;    // seconds since 1970, UTC
    std::string reason;          // "its sampler 'x' crashed in process(): segmentation fault"
    std::filesystem::path path;  // of the file when it crashed
};

class BarList {
public:
    // `file` empty: the list is empty and stays so.
    explicit BarList(std::filesystem::path file);

    // Reads the file again: another process may have added or removed bars.
    void refresh();

    const std::vector<Bar>& bars() const { return bars_; }
    const Bar* find(const Build& build) const;  // null: not barred

    // Adds a bar unless the build has one. Returns why the file could not be written, or nothing; the bar then holds
    // for this list only.
    std::string add(const Bar& bar);
    // Removes the bars that `which` picks and returns them.
    std::vector<Bar> remove(const std::function<bool(const Bar&)>& which);

private:
    std::filesystem::path file_;
    std::vector<Bar> bars_;
    std::vector<Bar> unwritten_;  // those of bars_ that could not be written
};

// "2026-11-23 06:40 UTC"
std::string time_text(std::int64_t since_s);

// While it exists, a write beyond the limit on file sizes (RLIMIT_FSIZE) fails with EFBIG on this thread instead of
// ending the program.
class FileSizeSignalHeld {
public:
    FileSizeSignalHeld();
    ~FileSizeSignalHeld();
    FileSizeSignalHeld(const FileSizeSignalHeld&) = delete;
    FileSizeSignalHeld& operator=(const FileSizeSignalHeld&) = delete;

private:
    bool was_blocked_ = false;
};

}  // namespace foresay::plugins
