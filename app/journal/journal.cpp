// Writing and reading session files. New files are written under a hidden name, synced and then linked or renamed into
// place, so that a crash never leaves half a file. Appends go to the open, locked descriptor with one write and one
// fdatasync; a failed append is truncated away. Reader turns the lines back into records and checks their order.
#include "app/journal/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "app/files.h"
#include "base/error.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kMaxSessionBytes = std::int64_t{1} << 30;

[[noreturn]] void fail(const std::string& what, const fs::path& path) {
    throw Error("cannot " + what + " " + path.string() + ": " + std::strerror(errno));
}

// Writes all of `text`. False, with errno set, when a write fails.
bool write_all(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t put = ::write(descriptor, text.data(), text.size());
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        text.remove_prefix(static_cast<std::size_t>(put));
    }
    return true;
}

// A new name is only on the disk once its folder is synced.
void sync_folder(const fs::path& folder) {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return;
    ::fsync(descriptor);
    ::close(descriptor);
}

// Writes the file under a hidden name and gives it its own once it is whole and on the disk. Returns the descriptor.
int write_whole(const fs::path& path, const std::string& text, bool replace) {
    const fs::path folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
    std::string hidden = ".";
    hidden.append(path.filename().string()).append(".").append(std::to_string(::getpid())).append(".tmp");
    const fs::path unfinished = folder / hidden;
    const int descriptor = ::open(unfinished.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
    if (descriptor < 0) fail("write", path);
    const bool written =
        write_all(descriptor, text) && ::fsync(descriptor) == 0 &&
        (replace ? std::rename(unfinished.c_str(), path.c_str()) == 0 : ::link(unfinished.c_str(), path.c_str()) == 0);
    const int problem = errno;
    if (!written || !replace) ::unlink(unfinished.c_str());
    if (!written) {
        ::close(descriptor);
        errno = problem;
        fail("write", path);
    }
    sync_folder(folder);
    return descriptor;
}

std::string text_of(const std::vector<SessionRecord>& records) {
    std::string text;
    for (const SessionRecord& record : records) {
        std::string line = record_line(record);
        if (line.size() > kMaxRecordBytes) throw Error("the turn is too long to save");
        text += line;
    }
    return text;
}

class Reader {
public:
    explicit Reader(fs::path path) : path_(std::move(path)) {}

    SavedSession read() {
        const std::string text = read_file(path_, "the session", kMaxSessionBytes);
        std::size_t begin = 0;
        for (line_ = 1; begin < text.size(); ++line_) {
            const std::size_t end = text.find('\n', begin);
            const std::string_view line = std::string_view(text).substr(begin, end - begin);
            const std::string_view json = end == std::string::npos ? std::string_view{} : whole_line(line);
            if (json.empty()) {
                // At the end of the file a crash cut the line off; elsewhere the file was changed.
                const bool last = end == std::string::npos || end + 1 == text.size();
                if (line_ == 1) fail("not a saved session of foresay");
                if (!last) fail("the line is damaged; a copy of the lines before it is a valid session");
                session_.cut_off = true;
                break;
            }
            try {
                take(parse_record(json));
            } catch (const Error& problem) {
                fail(problem.what());
            }
            begin = end + 1;
        }
        session_.whole_bytes = static_cast<std::int64_t>(begin);
        if (session_.engines.empty()) fail("not a saved session of foresay");
        return std::move(session_);
    }

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw Error(path_.string() + ":" + std::to_string(line_) + ": " + what);
    }

    void take(SessionRecord record) {
        if (auto* header = std::get_if<SessionHeader>(&record)) {
            if (line_ != 1) throw Error("the file has a second header");
            if (header->version != kSessionVersion) {
                throw Error("the session has format version " + std::to_string(header->version) +
                            ", but this program reads version " + std::to_string(kSessionVersion));
            }
            session_.header = std::move(*header);
            return;
        }
        if (line_ == 1) throw Error("not a saved session of foresay");
        if (auto* engine = std::get_if<EngineRecord>(&record)) {
            session_.engines.push_back(std::move(*engine));
        } else if (auto* settings = std::get_if<SettingsRecord>(&record)) {
            session_.settings = settings->toml;
            session_.all_settings.push_back(std::move(settings->toml));
        } else {
            auto& change = std::get<TurnTree::Change>(record);
            if (session_.engines.empty()) throw Error("a turn comes before the first engine record");
            const std::size_t added = change.added.size();
            session_.tree.apply(std::move(change));
            session_.engine_of.insert(session_.engine_of.end(), added, session_.engines.size() - 1);
            if (session_.all_settings.empty()) session_.all_settings.emplace_back();
            session_.settings_of.insert(session_.settings_of.end(), added, session_.all_settings.size() - 1);
        }
    }

    fs::path path_;
    SavedSession session_;
    std::size_t line_ = 0;
};

}  // namespace

SavedSession read_session(const fs::path& path) { return Reader(path).read(); }

void write_session(const fs::path& path, const std::vector<SessionRecord>& records) {
    ::close(write_whole(path, text_of(records), true));
}

void copy_session(const fs::path& from, const fs::path& to) {
    const SavedSession session = read_session(from);
    std::string text = read_file(from, "the session", kMaxSessionBytes);
    text.resize(std::min(text.size(), static_cast<std::size_t>(session.whole_bytes)));
    ::close(write_whole(to, text, true));
}

Journal::Journal(fs::path path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {
    lock();
    struct stat status {};
    if (::fstat(descriptor_, &status) == 0) size_ = status.st_size;
}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), size_(other.size_) {}

Journal& Journal::operator=(Journal&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    return *this;
}

Journal::~Journal() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void Journal::lock() {
    if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0) return;
    const bool busy = errno == EWOULDBLOCK;
    ::close(std::exchange(descriptor_, -1));
    if (busy) {
        throw Error("the session " + path_.string() +
                    " is open in another foresay process; quit that one, or name another session");
    }
}

Journal Journal::create(const fs::path& path, const std::vector<SessionRecord>& records, bool replace) {
    return Journal(path, write_whole(path, text_of(records), replace));
}

Journal Journal::open(const fs::path& path, const SavedSession& session) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
    if (descriptor < 0) fail("write", path);
    Journal journal(path, descriptor);
    if (journal.size_ < session.whole_bytes)
        throw Error("the session " + path.string() + " was changed by another program just now; try again");
    // Remove the partial line that a crash left, so that the next record begins on a line of its own.
    if (session.cut_off && ::ftruncate(descriptor, session.whole_bytes) != 0) fail("write", path);
    if (session.cut_off) journal.size_ = session.whole_bytes;
    if (journal.size_ != session.whole_bytes)
        throw Error("the session " + path.string() + " was changed by another program just now; try again");
    return journal;
}

void Journal::append(const std::vector<SessionRecord>& records) {
    const std::string text = text_of(records);
    if (text.empty()) return;
    if (write_all(descriptor_, text) && ::fdatasync(descriptor_) == 0) {
        size_ += static_cast<std::int64_t>(text.size());
        return;
    }
    // A partial line in the middle would make the file unreadable, so remove what was written of it.
    const int problem = errno;
    if (::ftruncate(descriptor_, size_) != 0) ::close(std::exchange(descriptor_, -1));
    errno = problem;
    fail("save the conversation to", path_);
}

}  // namespace foresay::app
