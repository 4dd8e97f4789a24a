#include "plugins/host/crash_marker.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>

#include "samplers/plugin_call.h"

namespace foresay::plugins {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kSlots = 64;  // as many plugins as a configuration may load
constexpr std::size_t kPathBytes = 848;
constexpr std::size_t kMaxPath = 4096;
constexpr char kMagic[8] = {'f', 's', 'p', 'l', 'u', 'g', '0', '2'};

struct Slot {
    std::atomic<std::uint32_t> running;  // first, because a site points to it
    std::uint32_t crashed;
    std::int64_t when_s;
    Build build;
    char reason[144];
    char path[kPathBytes];  // empty: the slot is free
};
static_assert(sizeof(Slot) == 1024 && std::atomic<std::uint32_t>::is_always_lock_free);

struct Contents {
    char magic[sizeof kMagic];
    Slot slots[kSlots];
};

// The markers of this process, where a signal handler may read them. A program has one for each engine, so usually one;
// what does not fit is not watched.
struct Registered {
    std::atomic<Contents*> contents;
    char path[kMaxPath];  // empty: none
};
Registered registered[8];

bool lies_in(const Contents* contents, const void* address) {
    const auto* begin = reinterpret_cast<const char*>(contents);
    const auto* at = static_cast<const char*>(address);
    return contents != nullptr && at >= begin && at < begin + sizeof(Contents);
}

void forget(Registered& marker) {
    if (marker.path[0] != 0) ::unlink(marker.path);
    marker.path[0] = 0;
    marker.contents = nullptr;
}

// Appends to a text of fixed size; cuts what does not fit. Safe in signal handlers.
template <std::size_t N>
class ShortText {
public:
    explicit ShortText(char (&text)[N]) : text_(text) { text_[0] = 0; }
    ShortText& operator<<(const char* more) {
        while (*more != 0 && size_ + 1 < N) text_[size_++] = *more++;
        text_[size_] = 0;
        return *this;
    }

private:
    char (&text_)[N];
    std::size_t size_ = 0;
};

}  // namespace

bool mark_crash(const samplers::PluginSite& site, const char* how) noexcept {
    for (Registered& marker : registered) {
        if (!lies_in(marker.contents, site.running)) continue;
        Slot& slot = *reinterpret_cast<Slot*>(site.running);
        ShortText text(slot.reason);
        if (site.sampler[0] != 0) {
            text << "its sampler '" << site.sampler << "'";
        } else {
            text << "it";
        }
        text << " crashed " << site.where << ": " << how;
        slot.when_s = ::time(nullptr);
        slot.crashed = 1;
        return true;
    }
    return false;
}

namespace {

// Puts memory that is not a file in place of a marker's mapping.
bool replace(Contents* contents) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    return ::mmap(contents, sizeof(Contents), PROT_READ | PROT_WRITE, flags, -1, 0) != MAP_FAILED;
}

}  // namespace

bool give_up_marker(const void* address) noexcept {
    for (Registered& marker : registered) {
        Contents* contents = marker.contents;
        if (!lies_in(contents, address)) continue;
        forget(marker);
        return replace(contents);
    }
    return false;
}

void give_up_markers() noexcept {
    for (Registered& marker : registered) {
        Contents* const contents = marker.contents.exchange(nullptr);
        marker.path[0] = 0;  // the file is the program's
        if (contents != nullptr) replace(contents);
    }
}

void absolve_plugins() noexcept {
    for (Registered& marker : registered) forget(marker);
}

CrashMarker::CrashMarker(fs::path base, bool runs)
    : base_(std::move(base)), runs_(runs), barred_(base_.empty() ? fs::path() : fs::path(base_.string() + ".barred")) {
    if (base_.empty()) return;
    std::error_code ignored;
    if (runs_) fs::create_directories(base_.parent_path(), ignored);
    read_dead_markers();
    if (runs_) create();
}

CrashMarker::~CrashMarker() {
    if (own_.empty()) return;
    for (Registered& marker : registered) {
        if (marker.contents.load() == memory_) forget(marker);
    }
    ::unlink(own_.c_str());
    ::close(lock_);
}

void CrashMarker::notice_once(const std::string& what, const std::string& why) {
    static std::atomic<bool> said{false};
    if (!said.exchange(true)) {
        notices_.push_back(what + " " + base_.parent_path().string() + ": " + why +
                           "; a plugin that crashes is named, but loaded again at the next start");
    }
}

void CrashMarker::read_dead_markers() {
    const std::string prefix = base_.filename().string() + ".running.";
    std::error_code error;
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(base_.parent_path(), error)) {
        if (entry.path().filename().string().starts_with(prefix)) files.push_back(entry.path());
    }
    for (const fs::path& file : files) {
        const int handle = ::open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
        if (handle < 0) continue;
        // The process that holds the lock lives, or is reading this file already.
        if (::flock(handle, LOCK_EX | LOCK_NB) == 0 && take_up(handle)) ::unlink(file.c_str());
        ::close(handle);
    }
}

// Reads the marker of a dead process. False: it is still needed, because not all that it says could be kept or said.
bool CrashMarker::take_up(int handle) {
    auto contents = std::make_unique<Contents>();
    struct stat status {};
    if (::fstat(handle, &status) != 0 || status.st_size != static_cast<off_t>(sizeof(Contents))) return true;
    const ssize_t got = ::pread(handle, static_cast<void*>(contents.get()), sizeof(Contents), 0);
    if (got != static_cast<ssize_t>(sizeof(Contents))) return true;
    if (std::memcmp(contents->magic, kMagic, sizeof kMagic) != 0) return true;
    bool done = true;
    for (const Slot& slot : contents->slots) {
        const std::string path(slot.path, strnlen(slot.path, sizeof slot.path));
        if (path.empty()) break;
        if (slot.crashed != 0) {
            const std::string reason(slot.reason, strnlen(slot.reason, sizeof slot.reason));
            const std::string problem =
                barred_.add({slot.build, slot.when_s, samplers::one_line(reason, reason.size()), path});
            if (problem.empty()) continue;
            done = false;
            notice_once("the list of barred plugins cannot be written in", problem);
        } else if (slot.running.load() > 0 && !runs_) {
            done = false;  // the next program that runs plugins says it
        } else if (slot.running.load() > 0) {
            notices_.push_back("plugin '" + path +
                               "' was running when foresay last ended without a word: it was killed, or the plugin "
                               "ended it with _exit(); the plugin is loaded again");
        }
    }
    return done;
}

// 0, or the errno of what failed. EAGAIN: worth another try.
int CrashMarker::try_to_create() {
    std::string name = base_.string() + ".running.XXXXXX";
    const int handle = ::mkostemp(name.data(), O_CLOEXEC);
    if (handle < 0) return errno;
    struct stat status {};
    void* memory = MAP_FAILED;
    int problem = ::flock(handle, LOCK_EX | LOCK_NB) != 0 ? errno : 0;
    if (problem == 0) {
        // Room is taken now: storing to a mapped hole where there is none would be a fatal signal.
        const FileSizeSignalHeld held;
        problem = ::posix_fallocate(handle, 0, sizeof(Contents));
    }
    if (problem == 0) {
        memory = ::mmap(nullptr, sizeof(Contents), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
        if (memory == MAP_FAILED) problem = errno;
    }
    // Another process may have taken the file for one that was left, in the moment before the lock.
    if (problem == 0 && (::fstat(handle, &status) != 0 || status.st_nlink == 0)) problem = EAGAIN;
    if (problem != 0) {
        if (memory != MAP_FAILED) ::munmap(memory, sizeof(Contents));
        ::close(handle);
        ::unlink(name.c_str());
        return problem;
    }
    own_ = name;
    lock_ = handle;
    memory_ = memory;
    return 0;
}

void CrashMarker::create() {
    int problem = EAGAIN;
    for (int tries = 0; tries < 4 && (problem == EAGAIN || problem == EWOULDBLOCK); ++tries) problem = try_to_create();
    if (problem != 0) return notice_once("no crash marker can be kept in", std::strerror(problem));
    const std::string name = own_.string();
    for (Registered& marker : registered) {
        if (marker.contents.load() != nullptr || name.size() >= kMaxPath) continue;
        // The first byte is written last, so a signal handler sees either no path or the whole one.
        marker.path[0] = 0;
        std::memcpy(marker.path + 1, name.c_str() + 1, name.size());
        std::atomic_signal_fence(std::memory_order_seq_cst);
        marker.path[0] = name[0];
        marker.contents = static_cast<Contents*>(memory_);
        break;
    }
    // From here on a store that fails is handled, where crash_watch.h is in use.
    std::memcpy(static_cast<Contents*>(memory_)->magic, kMagic, sizeof kMagic);
}

std::atomic<std::uint32_t>* CrashMarker::counter(const fs::path& plugin, const Build& build) {
    const std::string path = plugin.string();
    auto* contents = static_cast<Contents*>(memory_);
    if (contents == nullptr || path.size() >= kPathBytes) return nullptr;
    for (Slot& slot : contents->slots) {
        if (slot.path[0] == 0) {
            slot.build = build;
            std::memcpy(slot.path, path.c_str(), path.size() + 1);
        }
        if (path == slot.path && slot.build == build) return &slot.running;
    }
    return nullptr;
}

}  // namespace foresay::plugins
