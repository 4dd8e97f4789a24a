// app/edits/target_file.h: reads a file that is to be changed, and replaces it whole or not at all.
//
// A write goes to a temporary file in the same folder, which is synced and renamed over the old one. Mode, owner and
// extended attributes are kept where the system allows it. Signals that end the program wait until the temporary file
// is gone.
//
// Refused: folders, FIFOs, devices, sockets, files without write permission, files with several names (hard links),
// which a rename would separate, files that are not text or larger than kMostFileBytes, and files outside the working
// folder. A symbolic link is followed to its file, which must be inside, too. Errors:   Error naming the file; nothing
// has changed then. Threads:  one caller at a time.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

namespace foresay::app {

inline constexpr std::int64_t kMostFileBytes = std::int64_t{16} << 20;

// A file as it was read.
struct TargetFile {
    std::string name;            // as the user wrote it
    std::filesystem::path path;  // absolute, without links
    bool exists = false;         // the rest is of a file that exists
    std::string bytes;
    mode_t mode = 0;
    uid_t owner = 0;
    gid_t group = 0;
};

struct TargetRules {
    bool outside = false;     // the file may be outside the working folder
    bool must_exist = false;  // else a missing one is created by the write
};

// Finds, checks and reads a file. "~/" is the home folder.
TargetFile read_target(const std::string& name, const TargetRules& rules);

// Replaces the file by `bytes`. Refused if it is no longer as it was read. `before_rename` is for tests: it is called
// when everything but the rename is done.
void replace_target(const TargetFile& file, const std::string& bytes, const std::function<void()>& before_rename = {});

// Deletes the file. Refused if it is no longer as it was read.
void remove_target(const TargetFile& file);

// Keeps a copy of the file's bytes in the folder `backups` of the state folder, readable by its owner only, and deletes
// the oldest copies beyond kMostBackups. Returns its path; empty if there is no state folder.
std::filesystem::path keep_backup(const TargetFile& file);

inline constexpr std::size_t kMostBackups = 200;

}  // namespace foresay::app
