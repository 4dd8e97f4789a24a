// app/journal/journal.h: a session on disk: a file that only grows, a line for each change.
//
// A crash at any moment leaves whole lines, and at most one that is cut off; that one is recognised and dropped. A line
// is on the disk when append() returns.
//
// Life:     a journal keeps its file locked: two programs never write to one session.
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
    std::string settings;               // the last ones, TOML; may be empty
    TurnTree tree;
    // Who drew each turn, and with which settings: indices into `engines` and `all_settings`.
    std::vector<std::size_t> engine_of, settings_of;
    std::vector<std::string> all_settings;
    bool cut_off = false;          // the last line was, and is not part of this
    std::int64_t whole_bytes = 0;  // of the file, up to the end of the last whole line
};

// Reads a session's file. `name` stands for it in messages.
SavedSession read_session(const std::filesystem::path& path);

class Journal {
public:
    // A new file with these records, all of them or none. With `replace` it may take the place of another one.
    static Journal create(const std::filesystem::path& path, const std::vector<SessionRecord>& records, bool replace);
    // An existing file, to go on with. `session` is what was read from it.
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

// These records as a file, written whole or not at all; it replaces one that is there.
void write_session(const std::filesystem::path& path, const std::vector<SessionRecord>& records);
// What is whole of the session at `from`, likewise.
void copy_session(const std::filesystem::path& from, const std::filesystem::path& to);

}  // namespace foresay::app
