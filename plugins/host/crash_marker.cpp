#include "plugins/host/crash_marker.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>

namespace foresay::plugins {
namespace {

constexpr std::size_t kSlots = 16;
constexpr std::size_t kPathBytes = 1020;
constexpr std::size_t kMaxLines = 1000;
constexpr std::size_t kMaxPath = 4096;

// The path of this process's marker file, where a signal handler may read it; empty when there is none.
char marker_of_process[kMaxPath];

// Bit in a plugin's counter: the plugin was running when a crash signal came.
constexpr std::uint32_t kCrashed = 1u << 31;

std::vector<std::string> read_lines(const std::filesystem::path& path) {
    std::vector<std::string> lines;
    std::ifstream file(path);
    for (std::string line; lines.size() < kMaxLines && std::getline(file, line);) lines.push_back(line);
    return lines;
}

bool has(const std::vector<std::string>& list, const std::string& entry) {
    return std::find(list.begin(), list.end(), entry) != list.end();
}

}  // namespace

void absolve_plugins() noexcept {
    if (marker_of_process[0] != 0) ::unlink(marker_of_process);
}

struct CrashMarker::Slot {
    std::atomic<std::uint32_t> running;
    char path[kPathBytes];
};

namespace {

// The counters of this process, for signal handlers.
std::atomic<CrashMarker::Slot*> slots_of_process{nullptr};

void on_crash(int signal) {
    if (CrashMarker::Slot* slots = slots_of_process.load()) {
        for (std::size_t i = 0; i < kSlots; ++i) {
            if (slots[i].running.load() > 0) slots[i].running.fetch_or(kCrashed);
        }
    }
    ::raise(signal);  // SA_RESETHAND has put the default back
}

}  // namespace

void watch_for_crashes() {
    // The handlers need a stack of their own: a plugin may have used up the thread's.
    static char stack[1 << 16];
    stack_t other{};
    other.ss_sp = stack;
    other.ss_size = sizeof stack;
    ::sigaltstack(&other, nullptr);
    struct sigaction action {};
    action.sa_handler = on_crash;
    sigemptyset(&action.sa_mask);
    action.sa_flags = static_cast<int>(SA_ONSTACK | SA_RESETHAND | SA_NODEFER);
    for (const int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT}) ::sigaction(signal, &action, nullptr);
}

CrashMarker::CrashMarker(std::filesystem::path base) : base_(std::move(base)) {
    if (base_.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(base_.parent_path(), ignored);
    quarantined_ = read_lines(quarantine_file());
    suspects_ = read_lines(suspects_file());
    read_dead_markers();
    create();
}

CrashMarker::~CrashMarker() {
    if (own_.empty()) return;
    clear_suspects();
    slots_of_process = nullptr;
    ::unlink(own_.c_str());
    if (own_ == marker_of_process) marker_of_process[0] = 0;
}

std::filesystem::path CrashMarker::quarantine_file() const {
    std::filesystem::path file = base_;
    return file += ".quarantine";
}

std::filesystem::path CrashMarker::suspects_file() const {
    std::filesystem::path file = base_;
    return file += ".suspects";
}

// The plugin at `path` was running when a process died.
void CrashMarker::accuse(const std::string& path, bool crashed) {
    if (!crashed && !has(suspects_, path)) {
        suspects_.push_back(path);
        std::ofstream(suspects_file(), std::ios::app) << path << "\n";
        culprit_ = "plugin '" + path +
                   "' was running when foresay was last killed; if that happens once more, it is not loaded again";
        return;
    }
    culprit_ = "plugin '" + path + "' was running when foresay last died, and is not loaded again; delete '" +
               quarantine_file().string() + "' to allow it";
    if (has(quarantined_, path)) return;
    quarantined_.push_back(path);
    std::ofstream(quarantine_file(), std::ios::app) << path << "\n";
}

void CrashMarker::forget_suspect(const std::string& path) {
    if (std::erase(suspects_, path) == 0) return;
    std::ofstream file(suspects_file(), std::ios::trunc);
    for (const std::string& suspect : suspects_) file << suspect << "\n";
}

// Plugins that this process loaded and that did no harm are no longer suspected.
void CrashMarker::clear_suspects() {
    if (slots_ == nullptr) return;
    for (std::size_t i = 0; i < kSlots && slots_[i].path[0] != 0; ++i) forget_suspect(slots_[i].path);
}

void CrashMarker::read_dead_markers() {
    const std::string prefix = base_.filename().string() + ".";
    std::error_code error;
    for (const auto& entry : std::filesystem::directory_iterator(base_.parent_path(), error)) {
        const std::string name = entry.path().filename().string();
        if (name.rfind(prefix, 0) != 0) continue;
        pid_t pid = 0;
        const char* end = name.data() + name.size();
        const auto parsed = std::from_chars(name.data() + prefix.size(), end, pid);
        if (parsed.ec != std::errc() || parsed.ptr != end || pid <= 0) continue;
        if (pid == ::getpid() || ::kill(pid, 0) == 0 || errno != ESRCH) continue;
        std::ifstream file(entry.path(), std::ios::binary);
        for (std::size_t i = 0; i < kSlots; ++i) {
            std::uint32_t running = 0;
            char path[kPathBytes + 1] = {};
            file.read(reinterpret_cast<char*>(&running), sizeof running);
            if (!file.read(path, kPathBytes)) break;
            if (path[0] == 0) continue;
            if (running == 0) {
                forget_suspect(path);  // it was loaded but idle, so something else crashed
                continue;
            }
            accuse(path, (running & kCrashed) != 0);
        }
        file.close();
        ::unlink(entry.path().c_str());
    }
}

void CrashMarker::create() {
    std::filesystem::path file = base_;
    file += ".";
    file += std::to_string(::getpid());
    const int handle = ::open(file.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (handle < 0) return;
    void* memory = MAP_FAILED;
    // On a full disk a sparse file could be mapped, and the first store would be a SIGBUS.
    if (::posix_fallocate(handle, 0, static_cast<off_t>(kSlots * sizeof(Slot))) == 0) {
        memory = ::mmap(nullptr, kSlots * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    }
    ::close(handle);
    if (memory == MAP_FAILED) {
        ::unlink(file.c_str());
        return;
    }
    own_ = file;
    // The first byte is written last, so a signal handler sees either no path or the whole one.
    if (const std::string name = file.string(); name.size() < kMaxPath) {
        std::memcpy(marker_of_process + 1, name.c_str() + 1, name.size());
        std::atomic_signal_fence(std::memory_order_seq_cst);
        marker_of_process[0] = name[0];
    }
    slots_ = static_cast<Slot*>(memory);
    slots_of_process = slots_;
}

std::atomic<std::uint32_t>* CrashMarker::counter(const std::filesystem::path& plugin) {
    const std::string path = plugin.string();
    if (slots_ == nullptr || path.size() >= kPathBytes) return nullptr;
    for (std::size_t i = 0; i < kSlots; ++i) {
        if (slots_[i].path[0] == 0) std::memcpy(slots_[i].path, path.c_str(), path.size() + 1);
        if (path == slots_[i].path) return &slots_[i].running;
    }
    return nullptr;
}

bool CrashMarker::quarantined(const std::filesystem::path& plugin) const { return has(quarantined_, plugin.string()); }

void CrashMarker::forgive() {
    quarantined_.clear();
    suspects_.clear();
    culprit_.clear();
    if (base_.empty()) return;
    ::unlink(quarantine_file().c_str());
    ::unlink(suspects_file().c_str());
}

}  // namespace foresay::plugins
