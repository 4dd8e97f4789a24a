#include "app/journal/store.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ctime>
#include <string_view>
#include <system_error>

#include "app/files.h"
#include "app/journal/journal.h"
#include "base/error.h"
#include "core/config/nearest.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

constexpr const char* kExtension = ".session";
constexpr std::size_t kMaxName = 100;

bool is_name(const std::string& name) {
    constexpr const char* kAllowed = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    return !name.empty() && name.size() <= kMaxName && name.front() != '.' && name.front() != '-' &&
           name.find_first_not_of(kAllowed) == std::string::npos;
}

std::string formatted(const char* format, std::int64_t seconds) {
    const std::time_t time = seconds;
    std::tm parts{};
    gmtime_r(&time, &parts);
    std::array<char, 64> text{};
    std::strftime(text.data(), text.size(), format, &parts);
    return text.data();
}

// Whether new_session_path() made the name: "20261121-124530", or the same with a number, "20261121-124530-2".
bool is_time(const std::string& name) {
    constexpr std::string_view kPattern = "dddddddd-dddddd";
    if (name.size() < kPattern.size()) return false;
    for (std::size_t i = 0; i < name.size(); ++i) {
        const bool dash = i < kPattern.size() ? kPattern[i] == '-' : i == kPattern.size();
        if (dash ? name[i] != '-' : name[i] < '0' || name[i] > '9') return false;
    }
    return name.size() != kPattern.size() + 1;
}

// Deletes the file; returns false if it is open in another program. Holds the journal's lock while unlinking.
bool unlink_unless_open(const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (descriptor < 0) throw Error("cannot open " + path.string() + ": " + std::strerror(errno));
    const bool free = ::flock(descriptor, LOCK_EX | LOCK_NB) == 0;
    const int problem = free && ::unlink(path.c_str()) != 0 ? errno : 0;
    if (free && problem == 0) ::unlink(pages_of_session(path).c_str());
    ::close(descriptor);
    if (problem != 0) throw Error("cannot delete " + path.string() + ": " + std::strerror(problem));
    return free;
}

// Removes ".NAME.PID.tmp" files, which write_whole() in journal.cpp leaves when its process dies.
void remove_leftovers(const fs::path& folder) {
    std::error_code ignored;
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
        std::string name = entry.path().filename().string();
        if (!name.starts_with('.') || !name.ends_with(".tmp")) continue;
        name.resize(name.size() - 4);
        const std::string digits = name.substr(name.rfind('.') + 1);
        pid_t pid = 0;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), pid);
        if (error != std::errc() || end != digits.data() + digits.size() || pid <= 0) continue;
        if (::kill(pid, 0) != 0 && errno == ESRCH) ::unlink(entry.path().c_str());
    }
}

}  // namespace

fs::path sessions_folder() {
    const fs::path state = state_folder();
    if (state.empty()) {
        throw CannotSave("there is no folder to save sessions in; set HOME or XDG_STATE_HOME to a writable folder");
    }
    const fs::path folder = state / "sessions";
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
        throw CannotSave("cannot create the folder " + folder.string() + ": " + std::strerror(errno));
    }
    return folder;
}

fs::path session_path(const std::string& name) {
    if (name.find('/') != std::string::npos) return name;
    if (!is_name(name)) {
        throw Error("'" + name + "' is not a valid session name; use up to " + std::to_string(kMaxName) +
                    " letters, digits, '.', '_' and '-', and begin with a letter, a digit or '_'");
    }
    return sessions_folder() / (name + kExtension);
}

fs::path pages_of_session(const fs::path& path) { return path.string() + ".pages"; }

fs::path existing_session(const std::string& name) {
    try {
        fs::path path = session_path(name);
        std::error_code ignored;
        if (fs::exists(path, ignored)) return path;
    } catch (const CannotSave&) {
        // There is no folder, so there is no session either.
    }
    std::vector<std::string> names;
    if (name.find('/') == std::string::npos) {
        for (const SessionFile& file : list_sessions()) names.push_back(file.name);
    }
    const std::string near = core::nearest(name, names);
    throw Error("there is no saved session " + name +
                (near.empty() ? "; `foresay session list` lists them" : "; did you mean " + near + "?"));
}

fs::path new_session_path() {
    const fs::path folder = sessions_folder();
    const std::string time = formatted("%Y%m%d-%H%M%S", std::time(nullptr));
    std::error_code ignored;
    fs::path path = folder / (time + kExtension);
    for (int i = 2; fs::exists(path, ignored); ++i) path = folder / (time + "-" + std::to_string(i) + kExtension);
    return path;
}

std::vector<SessionFile> list_sessions() {
    struct Entry {
        SessionFile file;
        timespec time;
    };
    std::vector<Entry> entries;
    std::error_code ignored;
    fs::path folder;
    try {
        folder = sessions_folder();
    } catch (const CannotSave&) {
        return {};
    }
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
        struct stat status {};
        if (entry.path().extension() != kExtension || entry.path().filename().string().starts_with('.')) continue;
        if (::stat(entry.path().c_str(), &status) != 0 || !S_ISREG(status.st_mode)) continue;
        entries.push_back(
            {{entry.path().stem().string(), entry.path(), status.st_size, status.st_mtim.tv_sec}, status.st_mtim});
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        if (a.time.tv_sec != b.time.tv_sec) return a.time.tv_sec > b.time.tv_sec;
        if (a.time.tv_nsec != b.time.tv_nsec) return a.time.tv_nsec > b.time.tv_nsec;
        return a.file.name < b.file.name;
    });
    std::vector<SessionFile> files;
    for (Entry& entry : entries) files.push_back(std::move(entry.file));
    return files;
}

bool session_is_open(const fs::path& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return false;
    const bool open = ::flock(descriptor, LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    ::close(descriptor);
    return open;
}

void delete_session(const std::string& name) {
    if (name.find('/') != std::string::npos) {
        throw Error(name + " is a path, not the name of a session; delete the file itself with rm");
    }
    if (!unlink_unless_open(existing_session(name))) {
        throw Error("the session " + name + " is open in another foresay process; quit that one first");
    }
}

std::size_t prune_sessions(std::size_t keep) {
    std::size_t seen = 0, gone = 0;
    try {
        remove_leftovers(sessions_folder());
        if (keep == 0) return 0;
        for (const SessionFile& file : list_sessions()) {
            if (!is_time(file.name) || ++seen <= keep) continue;
            if (unlink_unless_open(file.path)) ++gone;
        }
    } catch (const Error&) {
        // Another program may have deleted the file first. The rest is tried again next time.
    }
    return gone;
}

std::string utc_time(std::int64_t seconds) { return formatted("%Y-%m-%dT%H:%M:%SZ", seconds); }

}  // namespace foresay::app
