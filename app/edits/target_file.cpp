#include "app/edits/target_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "app/conversation/source_files.h"
#include "app/edits/signal_delay.h"
#include "app/files.h"
#include "base/error.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

constexpr mode_t kModeBits = 07777;

std::string because(int problem) { return std::string(": ") + std::strerror(problem); }

class Descriptor {
public:
    explicit Descriptor(int number = -1) : number_(number) {}
    ~Descriptor() {
        if (number_ >= 0) ::close(number_);
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    int get() const { return number_; }
    bool valid() const { return number_ >= 0; }

private:
    int number_;
};

std::string kind_of(mode_t mode) {
    if (S_ISDIR(mode)) return "a folder";
    if (S_ISFIFO(mode)) return "a FIFO";
    if (S_ISSOCK(mode)) return "a socket";
    if (S_ISCHR(mode) || S_ISBLK(mode)) return "a device";
    return "not a regular file";
}

bool is_inside(const fs::path& path, const fs::path& folder) {
    return std::mismatch(folder.begin(), folder.end(), path.begin(), path.end()).first == folder.end();
}

// The place that `name` stands for, without links. Its folder exists; the file need not.
fs::path real_place(const std::string& name) {
    const fs::path asked = user_path(name);
    std::error_code problem;
    const fs::path here = fs::current_path(problem);
    if (problem) throw Error("the working folder cannot be used: " + problem.message());
    const fs::path whole = here / asked;
    const fs::path file = whole.filename();
    if (file.empty() || file == "." || file == "..") throw Error(name + " is a folder, not a file");
    const fs::path folder = fs::canonical(whole.parent_path(), problem);
    if (problem == std::errc::no_such_file_or_directory) {
        throw Error("there is no folder " + asked.parent_path().string() + "; create it first");
    }
    if (problem) throw Error("cannot use the folder of " + name + ": " + problem.message());
    const fs::path place = folder / file;
    if (!fs::is_symlink(fs::symlink_status(place, problem))) return place;
    const fs::path linked = fs::canonical(place, problem);
    if (problem) {
        throw Error(name + " is a symbolic link to " + fs::read_symlink(place, problem).string() +
                    ", which does not exist");
    }
    return linked;
}

void require_inside(const std::string& name, const fs::path& path) {
    std::error_code problem;
    const fs::path here = fs::canonical(fs::current_path(problem), problem);
    if (!problem && is_inside(path, here)) return;
    const bool linked = path.filename() != user_path(name).filename();
    throw Error((linked ? name + " is a symbolic link to " + path.string() + ", which is" : path.string() + " is") +
                " outside the working folder; add --outside to write it");
}

std::string read_all(int descriptor, const std::string& name) {
    std::string bytes;
    std::array<char, 65536> chunk{};
    for (;;) {
        const ssize_t got = ::read(descriptor, chunk.data(), chunk.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) throw Error("cannot read " + name + because(errno));
        if (got == 0) return bytes;
        bytes.append(chunk.data(), static_cast<std::size_t>(got));
        if (static_cast<std::int64_t>(bytes.size()) > kMostFileBytes) {
            throw Error(name + " is larger than " + std::to_string(kMostFileBytes >> 20) +
                        " MiB, the most that foresay changes");
        }
    }
}

// Opens a regular file for reading, and no link. nullopt: there is no file.
std::optional<struct stat> open_regular(const fs::path& path, const std::string& name, std::string& bytes) {
    struct stat status {};
    if (::lstat(path.c_str(), &status) != 0) {
        if (errno == ENOENT) return std::nullopt;
        throw Error("cannot read " + name + because(errno));
    }
    // Before it is opened: opening a device may do something.
    if (!S_ISREG(status.st_mode)) throw Error(name + " is " + kind_of(status.st_mode) + "; only files are written");
    const Descriptor file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!file.valid() && errno == ENOENT) return std::nullopt;
    if (!file.valid() || ::fstat(file.get(), &status) != 0) throw Error("cannot read " + name + because(errno));
    if (!S_ISREG(status.st_mode)) throw Error(name + " is " + kind_of(status.st_mode) + "; only files are written");
    bytes = read_all(file.get(), name);
    return status;
}

void require_same(const TargetFile& file) {
    std::string bytes;
    const auto status = open_regular(file.path, file.name, bytes);
    if (status.has_value() != file.exists) {
        throw Error(file.name + (file.exists ? " was deleted" : " was created") +
                    " by another program meanwhile; nothing was written");
    }
    if (status && (bytes != file.bytes || (status->st_mode & kModeBits) != file.mode)) {
        throw Error(file.name + " was changed by another program meanwhile; nothing was written");
    }
}

bool write_all(int descriptor, std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t put = ::write(descriptor, bytes.data(), bytes.size());
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
    return true;
}

void sync_folder(const fs::path& folder) {
    const Descriptor opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (opened.valid()) ::fsync(opened.get());
}

// Access control lists and what users have noted about a file. What cannot be copied is left out.
void copy_attributes(const fs::path& from, int to) {
    const ssize_t size = ::llistxattr(from.c_str(), nullptr, 0);
    if (size <= 0) return;
    std::vector<char> names(static_cast<std::size_t>(size));
    const ssize_t got = ::llistxattr(from.c_str(), names.data(), names.size());
    for (std::size_t at = 0; got > 0 && at < static_cast<std::size_t>(got);) {
        const std::string name(names.data() + at);
        at += name.size() + 1;
        std::vector<char> value(65536);
        const ssize_t length = ::lgetxattr(from.c_str(), name.c_str(), value.data(), value.size());
        if (length >= 0)
            static_cast<void>(::fsetxattr(to, name.c_str(), value.data(), static_cast<std::size_t>(length), 0));
    }
}

// Owner, mode and attributes of the old file. The set-user-ID bits stay only with their owner.
bool keep_properties(const TargetFile& file, int descriptor) {
    if (!file.exists) {
        const mode_t mask = ::umask(0);
        ::umask(mask);
        return ::fchmod(descriptor, 0666 & ~mask) == 0;
    }
    struct stat made {};
    if (::fstat(descriptor, &made) != 0) return false;
    bool same_owner = made.st_uid == file.owner && made.st_gid == file.group;
    if (!same_owner) {
        same_owner = ::fchown(descriptor, file.owner, file.group) == 0;
        if (!same_owner) static_cast<void>(::fchown(descriptor, static_cast<uid_t>(-1), file.group) == 0);
    }
    copy_attributes(file.path, descriptor);
    return ::fchmod(descriptor, same_owner ? file.mode : file.mode & 0777) == 0;
}

// A temporary file beside the one to be written, deleted unless it was renamed.
class Temporary {
public:
    explicit Temporary(const TargetFile& file) {
        const std::string stem = "." + file.path.filename().string().substr(0, 200) + ".foresay-XXXXXX";
        path_ = (file.path.parent_path() / stem).string();
        descriptor_ = ::mkostemp(path_.data(), O_CLOEXEC);
        if (descriptor_ < 0) {
            throw Error("cannot write " + file.name + ": no file can be created in its folder" + because(errno));
        }
    }
    ~Temporary() {
        ::close(descriptor_);
        if (!renamed_) ::unlink(path_.c_str());
    }
    Temporary(const Temporary&) = delete;
    Temporary& operator=(const Temporary&) = delete;
    int descriptor() const { return descriptor_; }
    const char* path() const { return path_.c_str(); }
    void was_renamed() { renamed_ = true; }

private:
    std::string path_;
    int descriptor_ = -1;
    bool renamed_ = false;
};

}  // namespace

TargetFile read_target(const std::string& name, const TargetRules& rules) {
    if (name.empty() || name.find('\0') != std::string::npos) throw Error("name a file to write");
    TargetFile file{.name = name, .path = real_place(name)};
    if (!rules.outside) require_inside(name, file.path);
    const auto status = open_regular(file.path, name, file.bytes);
    if (!status) {
        if (rules.must_exist) throw Error("there is no file " + name);
        return file;
    }
    file.exists = true;
    file.mode = status->st_mode & kModeBits;
    file.owner = status->st_uid;
    file.group = status->st_gid;
    constexpr mode_t kAnyWrite = 0222;
    if ((file.mode & kAnyWrite) == 0 || ::faccessat(AT_FDCWD, file.path.c_str(), W_OK, AT_EACCESS) != 0) {
        throw Error(name + " is read-only; allow writing first, for example with chmod u+w");
    }
    if (status->st_nlink > 1) {
        throw Error(name + " has " + std::to_string(status->st_nlink) +
                    " names (hard links), which a safe write would separate; copy it to a file of its own first");
    }
    if (file.bytes.find('\0') != std::string::npos) throw Error(name + " is not text: it contains zero bytes");
    return file;
}

void replace_target(const TargetFile& file, const std::string& bytes, const std::function<void()>& before_rename) {
    const SignalDelay delay;
    Temporary temporary(file);
    if (!write_all(temporary.descriptor(), bytes) || !keep_properties(file, temporary.descriptor()) ||
        ::fsync(temporary.descriptor()) != 0) {
        throw Error("cannot write " + file.name + because(errno));
    }
    if (before_rename) before_rename();
    require_same(file);
    if (file.exists) {
        if (std::rename(temporary.path(), file.path.c_str()) != 0) {
            throw Error("cannot write " + file.name + because(errno));
        }
        temporary.was_renamed();
    } else if (::renameat2(AT_FDCWD, temporary.path(), AT_FDCWD, file.path.c_str(), RENAME_NOREPLACE) == 0) {
        temporary.was_renamed();
    } else if (errno != EINVAL && errno != ENOSYS) {
        throw Error("cannot write " + file.name + because(errno));
    } else if (::link(temporary.path(), file.path.c_str()) != 0) {  // does not replace a file either
        throw Error("cannot write " + file.name + because(errno));
    }
    sync_folder(file.path.parent_path());
}

void remove_target(const TargetFile& file) {
    const SignalDelay delay;
    require_same(file);
    if (::unlink(file.path.c_str()) != 0) throw Error("cannot delete " + file.name + because(errno));
    sync_folder(file.path.parent_path());
}

fs::path keep_backup(const TargetFile& file) {
    const fs::path state = state_folder();
    if (state.empty()) return {};
    const fs::path folder = state / "backups";
    if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
        throw Error("cannot create the folder for backups, " + folder.string() + because(errno));
    }
    std::array<char, 32> time{};
    const std::time_t now = std::time(nullptr);
    std::tm parts{};
    ::gmtime_r(&now, &parts);
    std::strftime(time.data(), time.size(), "%Y%m%d-%H%M%S", &parts);
    const std::string name = file.path.filename().string().substr(0, 200);
    const auto all_backups = [&folder] {
        std::vector<fs::path> found;
        std::error_code ignored;
        for (fs::directory_iterator entry(folder, ignored), end; !ignored && entry != end; entry.increment(ignored)) {
            found.push_back(entry->path());
        }
        return found;
    };
    // The numbers of one second only grow, also when its first backups are deleted already: their order is their age.
    const std::string second = std::string(time.data()) + "-";
    int first = 0;
    for (const fs::path& backup : all_backups()) {
        const std::string other = backup.filename().string();
        if (other.starts_with(second)) first = std::max(first, std::atoi(other.c_str() + second.size()) + 1);
    }
    for (int number = std::min(first, 999);; ++number) {
        std::array<char, 16> digits{};
        std::snprintf(digits.data(), digits.size(), "%03d", number);
        const fs::path path = folder / (second + digits.data() + "-" + name);
        const Descriptor made(::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!made.valid() && errno == EEXIST && number < 999) continue;
        if (!made.valid() || !write_all(made.get(), file.bytes) || ::fsync(made.get()) != 0) {
            const int problem = errno;
            if (made.valid()) ::unlink(path.c_str());
            throw Error("cannot keep a backup of " + file.name + " in " + folder.string() + because(problem) +
                        "; nothing was written");
        }
        std::vector<fs::path> others = all_backups();
        std::erase(others, path);                 // the newest one, even if the clock was set back
        std::sort(others.begin(), others.end());  // their names begin with the time
        std::error_code ignored;
        for (std::size_t i = 0; i + kMostBackups <= others.size(); ++i) fs::remove(others[i], ignored);
        return path;
    }
}

}  // namespace foresay::app
