// app/journal/journal.h: a session on disk: an append-only file with one line for each change.
//
// A crash leaves whole lines and at most one partial line at the end, which reading recognises and drops. A line that
// append() wrote with Until::power_cut is on the disk when it returns. Until::process_ends skips the wait for the disk:
// the line survives the end of the process, however it ends, but perhaps not a power cut.
//
// Life:     a journal holds a lock on its file, so that two programs never write to one session.
// Threads:  one caller at a time.
// Cost:     append() is one write, and one fdatasync unless it need not survive a power cut.
// Errors:   Error naming the file and, where there is one, the line.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "app/journal/record.h"
#include "base/error.h"

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
    // The last change of `tree`, if the program ended while it was being generated. The file does not have it as a
    // change yet: append it before anything else.
    std::optional<TurnTree::Change> unfinished;
};

// Reads and checks the file of a session.
SavedSession read_session(const std::filesystem::path& path);

// What the user should know about a session whose program ended in the middle of something; empty when it did not.
std::string cut_off_note(const SavedSession& session);

// The file cannot be written, though it may be a good session: the conversation can go on without being saved.
class CannotSave : public Error {
public:
    using Error::Error;
};

// There is a file of that name already.
class SessionExists : public CannotSave {
public:
    using CannotSave::CannotSave;
};

enum class Until : std::uint8_t { power_cut, process_ends };

class Journal {
public:
    // Creates a file with these records, all or none. Errors: CannotSave; SessionExists.
    static Journal create(const std::filesystem::path& path, const std::vector<SessionRecord>& records,
                          Until keep = Until::power_cut);
    // Opens an existing file to append to it. `session` is what read_session() returned for it; Error if the file has
    // changed since or is open in another process, CannotSave if it cannot be written.
    static Journal open(const std::filesystem::path& path, const SavedSession& session);

    Journal(Journal&& other) noexcept;
    Journal& operator=(Journal&& other) noexcept;
    ~Journal();

    // Errors: CannotSave; nothing of `records` is in the file then.
    void append(const std::vector<SessionRecord>& records, Until keep = Until::power_cut);
    // Removes what was appended since the file had `bytes` bytes, if it can.
    void cut_back(std::int64_t bytes);
    std::int64_t bytes() const { return size_; }
    // All lines of the file, even if another program has deleted it or put another file in its place.
    std::string text() const;
    const std::filesystem::path& path() const { return path_; }

private:
    Journal(std::filesystem::path path, int descriptor, std::int64_t size);
    void lock();

    std::filesystem::path path_;
    int descriptor_ = -1;
    std::int64_t size_ = 0;
    bool synced_ = false;  // the file's name is on the disk
};

// The lines of `records`.
std::string text_of(const std::vector<SessionRecord>& records);

enum class Replace : std::uint8_t {
    earlier_copy,  // only a file whose lines are the first of the new one
    any_session,   // any session that is not open in a program
};

// Writes `text`, the lines of a session, as a file, whole or not at all. Errors: Error when the file exists and may not
// be replaced, because it is open in a process, holds another conversation (SessionExists) or is not a session.
void write_session(const std::filesystem::path& path, const std::string& text, Replace replace);

}  // namespace foresay::app
