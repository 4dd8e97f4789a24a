// app/journal/store.h: the folder of the saved sessions, and their names: `sessions` in the user's state folder,
// readable by its owner only, with one file NAME.session each.
//
// Errors:   Error for an invalid name and for a session that does not exist or is open in another process; CannotSave
//           (journal.h) for a folder that cannot be created.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace foresay::app {

// The folder; created if it does not exist. Errors: there is no state folder.
std::filesystem::path sessions_folder();

// The file of a session: NAME.session in the folder, or `name` itself if it has a slash.
std::filesystem::path session_path(const std::string& name);
// The same for a session that must exist. The error suggests a similar name.
std::filesystem::path existing_session(const std::string& name);
// A new file for a session without a name: named after the time in UTC, with a number if that name is taken.
std::filesystem::path new_session_path();

// The file of the keys and values of a session, beside it; it need not exist.
std::filesystem::path pages_of_session(const std::filesystem::path& path);

struct SessionFile {
    std::string name;
    std::filesystem::path path;
    std::int64_t bytes = 0;
    std::int64_t modified_s = 0;  // since 1970
};
// All sessions, the most recently used first; none if there is no folder.
std::vector<SessionFile> list_sessions();

// Whether a foresay process has the session open.
bool session_is_open(const std::filesystem::path& path);

// Deletes a session by its name. Refuses paths: those files are not ours to delete.
void delete_session(const std::string& name);
// Deletes the oldest sessions that new_session_path() named, until `keep` of them are left; 0 keeps all. Sessions that
// the user named stay, and so do those that are open in a program. Also deletes the unfinished files of processes that
// have died. Never throws. Returns how many sessions were deleted.
std::size_t prune_sessions(std::size_t keep);

// "2026-11-21T12:45:30Z"
std::string utc_time(std::int64_t seconds);

}  // namespace foresay::app
