// app/journal/journal.h: a session on disk: an append-only file with one line for each change.
//
// A crash leaves whole lines and at most one partial line at the end, which reading recognises and drops. A line is on
// the disk when append() returns.
//
// Life:     a journal holds a lock on its file, so that two programs never write to one session.
// Threads:  one caller at a time.
// Cost:     append() is one write and one fdatasync.
// Errors:   Error naming the file and, where there is one, the line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "app/journal/record.h"

namespace foresay::app {

struct SavedSession {
    SessionHeader header;
    std::vector<EngineRecord> engines;  // in order; at least one
    std::string settings;               // the last settings, as TOML; may be empty
    TurnTree tree;
    // Per turn: the engine that generated it and its settings, as indices into `engines` and `all_settings`.
    std::vector<std::size_t> engine_of, settings_of;
    std::vector<std::string> all_settings;
    bool cut_off = false;          // the file ends with a partial line, which was dropped
    std::int64_t whole_bytes = 0;  // length of the file up to the end of its last whole line
};

// Reads and checks the file of a session.
SavedSession read_session(const std::filesystem::path& path);

class Journal {
public:
    // Creates a file with these records, all or none. With `replace`, it may replace an existing file.
    static Journal create(const std::filesystem::path& path, const std::vector<SessionRecord>& records, bool replace);
    // Opens an existing file to append to it. `session` is what read_session() returned for it; Error if the file has
    // changed since.
    static Journal open(const std::filesystem::path& path, const SavedSession& session);

    Journal(Journal&& other) noexcept;
    Journal& operator=(Journal&& other) noexcept;
    ~Journal();

    void append(const std::vector<SessionRecord>& records);
    const std::filesystem::path& path() const { return path_; }

private:
    Journal(std::filesystem::path path, int descriptor);
    void lock();

    std::filesystem::path path_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;
};

// Writes these records as a file, whole or not at all. Replaces an existing file.
void write_session(const std::filesystem::path& path, const std::vector<SessionRecord>& records);
// Copies the whole lines of the session at `from`, in the same way.
void copy_session(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace foresay::app
