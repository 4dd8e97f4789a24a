// app/journal/store.h: where sessions lie, and what they are called: the folder `sessions` of the user's state folder,
// for its owner only, one file NAME.session each.
//
// Errors:   Error: a name that is none, a session that is not there or is open elsewhere, a folder that cannot be made.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace foresay::app {

// The folder, made if it is not there. Errors: there is no state folder.
std::filesystem::path sessions_folder();

// The file of a session: a name is looked for in the folder; what has a slash in it is a path.
std::filesystem::path session_path(const std::string& name);
// The same for a session that must be there; the error names near ones.
std::filesystem::path existing_session(const std::string& name);
// A file for a session that was given no name: the time, and a number where there is one of that second.
std::filesystem::path new_session_path();

struct SessionFile {
    std::string name;
    std::filesystem::path path;
    std::int64_t bytes = 0;
    std::int64_t modified_s = 0;  // since 1970
};
// The last used first.
std::vector<SessionFile> list_sessions();

// Deletes a session by its name. What has a slash in it is a file of the person's own, and refused.
void delete_session(const std::string& name);
// Deletes the oldest of those that new_session_path() named until `keep` of them are left; 0 keeps all. What was given
// a name stays, and so does what is open in a program. Never throws. Returns how many are gone.
std::size_t prune_sessions(std::size_t keep);

// "2026-11-21T12:45:30Z"
std::string utc_time(std::int64_t seconds);

}  // namespace foresay::app
