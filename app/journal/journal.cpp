// Writing and reading session files. New files are written under a hidden name, locked, synced and then linked or
// renamed into place, so that a crash never leaves half a file, and no other program can open it first. Appends go to
// the open, locked descriptor with one write; a failed append is truncated away. Reader turns the lines back into
// records and checks their order.
#include "app/journal/journal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

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
    throw CannotSave("cannot " + what + " " + path.string() + ": " + std::strerror(errno));
}

// Closes a descriptor at the end of its scope, unless it is released.
class Descriptor {
public:
    explicit Descriptor(int value) : value_(value) {}
    ~Descriptor() {
        if (value_ >= 0) ::close(value_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return value_; }
    int release() { return std::exchange(value_, -1); }

private:
    int value_;
};

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

// The first `bytes` bytes of an open file, or fewer if it has no more.
std::string read_all(int descriptor, std::int64_t bytes, const fs::path& path) {
    std::string text(static_cast<std::size_t>(bytes), '\0');
    std::size_t got = 0;
    while (got < text.size()) {
        const ssize_t part = ::pread(descriptor, text.data() + got, text.size() - got, static_cast<off_t>(got));
        if (part < 0 && errno == EINTR) continue;
        if (part < 0) throw Error("cannot read " + path.string() + ": " + std::strerror(errno));
        if (part == 0) break;
        got += static_cast<std::size_t>(part);
    }
    text.resize(got);
    return text;
}

bool sync_data(int descriptor) {
    int result = 0;
    do {
        result = ::fdatasync(descriptor);
    } while (result != 0 && errno == EINTR);
    return result == 0;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : fs::path("."); }

// A new name is only on the disk once its folder is synced.
void sync_folder(const fs::path& folder) {
    const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (descriptor.get() >= 0) ::fsync(descriptor.get());
}

enum class Lock : std::uint8_t { taken, busy, failed };

Lock try_lock(int descriptor) {
    if (::flock(descriptor, LOCK_EX | LOCK_NB) == 0) return Lock::taken;
    return errno == EWOULDBLOCK ? Lock::busy : Lock::failed;
}

[[noreturn]] void refuse_open_session(const fs::path& path) {
    throw Error("the session " + path.string() +
                " is open in another foresay process; quit that one, or name another session");
}

// Writes a file under a hidden name and gives it its own once it is whole, so that a crash leaves no half of it. The
// file is locked before it has its name. Returns the descriptor.
int write_whole(const fs::path& path, const std::string& text, bool replace, Until keep) {
    std::string name = ".";
    name.append(path.filename().string()).append(".").append(std::to_string(::getpid())).append(".tmp");
    const fs::path hidden = folder_of(path) / name;
    Descriptor file(::open(hidden.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
    if (file.get() < 0) fail("write", path);
    const bool sync = keep == Until::power_cut;
    const bool written = try_lock(file.get()) == Lock::taken && write_all(file.get(), text) &&
                         (!sync || sync_data(file.get())) &&
                         (replace ? ::rename(hidden.c_str(), path.c_str()) : ::link(hidden.c_str(), path.c_str())) == 0;
    const int problem = errno;
    if (!written || !replace) ::unlink(hidden.c_str());
    errno = problem;
    if (!written && problem == EEXIST) throw SessionExists("cannot write " + path.string() + ": it exists already");
    if (!written) fail("write", path);
    if (sync) sync_folder(folder_of(path));
    return file.release();
}

class Reader {
public:
    explicit Reader(fs::path path) : path_(std::move(path)) {}

    SavedSession read() {
        std::error_code ignored;
        if (fs::exists(path_, ignored) && !fs::is_regular_file(path_, ignored)) {
            throw Error("the session " + path_.string() + " is not a file");
        }
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
        if (unfinished_) {
            session_.unfinished = unfinished_;
            try {
                take_change(std::move(*unfinished_));
            } catch (const Error& problem) {
                fail(problem.what());
            }
        }
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
        } else if (auto* unfinished = std::get_if<UnfinishedRecord>(&record)) {
            unfinished_ = std::move(unfinished->change);
            for (TurnTree::Node& node : unfinished_->added) {
                node.turn.ended = false;
                node.turn.finish = Turn::Finish::cancelled;
            }
        } else if (auto* more = std::get_if<TokensRecord>(&record)) {
            if (!unfinished_ || more->turn >= unfinished_->added.size()) {
                throw Error("the line has tokens of an answer that was not begun");
            }
            std::vector<std::int32_t>& answer = unfinished_->added[more->turn].turn.answer;
            answer.insert(answer.end(), more->tokens.begin(), more->tokens.end());
        } else {
            unfinished_.reset();
            take_change(std::move(std::get<TurnTree::Change>(record)));
        }
    }

    void take_change(TurnTree::Change change) {
        if (session_.engines.empty()) throw Error("a turn comes before the first engine record");
        const std::size_t added = change.added.size();
        session_.tree.apply(std::move(change));
        session_.engine_of.insert(session_.engine_of.end(), added, session_.engines.size() - 1);
        if (session_.all_settings.empty()) session_.all_settings.emplace_back();
        session_.settings_of.insert(session_.settings_of.end(), added, session_.all_settings.size() - 1);
    }

    fs::path path_;
    SavedSession session_;
    std::optional<TurnTree::Change> unfinished_;
    std::size_t line_ = 0;
};

}  // namespace

SavedSession read_session(const fs::path& path) { return Reader(path).read(); }

std::string cut_off_note(const SavedSession& session) {
    if (session.unfinished) return "the program ended during the last answer; what was saved of it is kept";
    return session.cut_off ? "the last change was cut off by a crash and is lost" : "";
}

std::string text_of(const std::vector<SessionRecord>& records) {
    std::string text;
    for (const SessionRecord& record : records) {
        std::string line = record_line(record);
        if (line.size() > kMaxRecordBytes) throw CannotSave("the turn is too long to save");
        text += line;
    }
    return text;
}

void write_session(const fs::path& path, const std::string& text, Replace replace) {
    std::error_code ignored;
    // The file that a link names is replaced, and the link stays.
    const fs::path target = fs::is_symlink(path, ignored) ? fs::weakly_canonical(path, ignored) : path;
    const Descriptor present(::open(target.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (present.get() < 0 && errno != ENOENT) fail("write", target);
    if (present.get() >= 0) {
        struct stat status {};
        if (::fstat(present.get(), &status) != 0) fail("write", target);
        if (!S_ISREG(status.st_mode)) throw Error(target.string() + " is not a file; choose another name");
        const Lock lock = try_lock(present.get());
        if (lock == Lock::busy) refuse_open_session(target);
        if (lock == Lock::failed) fail("lock", target);
        if (status.st_size > kMaxSessionBytes) throw Error(target.string() + " is too large to be a saved session");
        const std::string before = read_all(present.get(), status.st_size, target);
        if (!text.starts_with(before)) {
            const std::string_view first = std::string_view(before).substr(0, before.find('\n'));
            if (whole_line(first).find("\"foresay_session\"") == std::string_view::npos) {
                throw Error(target.string() + " is not a saved session of foresay; choose another name");
            }
            if (replace == Replace::earlier_copy) {
                throw SessionExists(target.string() + " holds another conversation; choose another name");
            }
        }
    }
    // The lock on the present file is held until it is replaced, so that no program opens it in between.
    ::close(write_whole(target, text, present.get() >= 0, Until::power_cut));
}

Journal::Journal(fs::path path, int descriptor, std::int64_t size)
    : path_(std::move(path)), descriptor_(descriptor), size_(size) {}

Journal::Journal(Journal&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(other.size_),
      synced_(other.synced_) {}

Journal& Journal::operator=(Journal&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    std::swap(synced_, other.synced_);
    return *this;
}

Journal::~Journal() {
    if (descriptor_ >= 0) ::close(descriptor_);
}

void Journal::lock() {
    const Lock lock = try_lock(descriptor_);
    if (lock == Lock::busy) refuse_open_session(path_);
    if (lock == Lock::failed) fail("lock", path_);
    // Another program may have replaced or deleted the file between our open() and the lock.
    struct stat locked {
    }, named{};
    if (::fstat(descriptor_, &locked) != 0 || ::stat(path_.c_str(), &named) != 0 || locked.st_ino != named.st_ino ||
        locked.st_dev != named.st_dev) {
        throw Error("the session " + path_.string() + " was replaced by another program just now; try again");
    }
    size_ = locked.st_size;
}

Journal Journal::create(const fs::path& path, const std::vector<SessionRecord>& records, Until keep) {
    const std::string text = text_of(records);
    Journal journal(path, write_whole(path, text, false, keep), static_cast<std::int64_t>(text.size()));
    journal.synced_ = keep == Until::power_cut;
    return journal;
}

Journal Journal::open(const fs::path& path, const SavedSession& session) {
    const int descriptor = ::open(path.c_str(), O_RDWR | O_APPEND | O_CLOEXEC);
    if (descriptor < 0) fail("write", path);
    Journal journal(path, descriptor, 0);
    journal.lock();
    if (journal.size_ < session.whole_bytes)
        throw Error("the session " + path.string() + " was changed by another program just now; try again");
    // Remove the partial line that a crash left, so that the next record begins on a line of its own.
    if (session.cut_off && ::ftruncate(descriptor, session.whole_bytes) != 0) fail("write", path);
    if (session.cut_off) journal.size_ = session.whole_bytes;
    if (journal.size_ != session.whole_bytes)
        throw Error("the session " + path.string() + " was changed by another program just now; try again");
    return journal;
}

void Journal::append(const std::vector<SessionRecord>& records, Until keep) {
    const std::string text = text_of(records);
    if (text.empty()) return;
    struct stat status {};
    if (::fstat(descriptor_, &status) == 0 && status.st_nlink == 0) {
        throw CannotSave("cannot save the conversation: another program has deleted or replaced " + path_.string() +
                         "; /save NAME keeps it");
    }
    if (write_all(descriptor_, text) && (keep == Until::process_ends || sync_data(descriptor_))) {
        size_ += static_cast<std::int64_t>(text.size());
        if (keep == Until::power_cut && !std::exchange(synced_, true)) sync_folder(folder_of(path_));
        return;
    }
    // A partial line in the middle would make the file unreadable, so remove what was written of it.
    const int problem = errno;
    if (::ftruncate(descriptor_, size_) != 0) ::close(std::exchange(descriptor_, -1));
    errno = problem;
    fail("save the conversation to", path_);
}

void Journal::cut_back(std::int64_t bytes) {
    if (bytes < size_ && ::ftruncate(descriptor_, bytes) == 0) size_ = bytes;
}

std::string Journal::text() const { return read_all(descriptor_, size_, path_); }

}  // namespace foresay::app
