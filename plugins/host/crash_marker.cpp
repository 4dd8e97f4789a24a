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

// The file of this process, in storage that a signal handler may read; empty when there is none.
char marker_of_process[kMaxPath];

}  // namespace

void absolve_plugins() noexcept {
    if (marker_of_process[0] != 0) ::unlink(marker_of_process);
}

struct CrashMarker::Slot {
    std::atomic<std::uint32_t> running;
    char path[kPathBytes];
};

CrashMarker::CrashMarker(std::filesystem::path base) : base_(std::move(base)) {
    if (base_.empty()) return;
    std::error_code ignored;
    std::filesystem::create_directories(base_.parent_path(), ignored);
    std::ifstream list(quarantine_file());
    for (std::string line; quarantined_.size() < kMaxLines && std::getline(list, line);) quarantined_.push_back(line);
    examine_the_dead();
    create();
}

CrashMarker::~CrashMarker() {
    if (own_.empty()) return;
    ::unlink(own_.c_str());
    if (own_ == marker_of_process) marker_of_process[0] = 0;
}

std::filesystem::path CrashMarker::quarantine_file() const {
    std::filesystem::path file = base_;
    return file += ".quarantine";
}

void CrashMarker::examine_the_dead() {
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
            if (running == 0 || path[0] == 0) continue;
            culprit_ = "plugin '" + std::string(path) +
                       "' was running when foresay last died, and is not loaded again; delete '" +
                       quarantine_file().string() + "' to allow it";
            if (std::find(quarantined_.begin(), quarantined_.end(), path) != quarantined_.end()) continue;
            quarantined_.push_back(path);
            std::ofstream(quarantine_file(), std::ios::app) << path << "\n";
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
    if (::ftruncate(handle, static_cast<off_t>(kSlots * sizeof(Slot))) == 0) {
        memory = ::mmap(nullptr, kSlots * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_SHARED, handle, 0);
    }
    ::close(handle);
    if (memory == MAP_FAILED) {
        ::unlink(file.c_str());
        return;
    }
    own_ = file;
    // Its first byte comes last: a signal in between finds no name, or the whole.
    if (const std::string name = file.string(); name.size() < kMaxPath) {
        std::memcpy(marker_of_process + 1, name.c_str() + 1, name.size());
        std::atomic_signal_fence(std::memory_order_seq_cst);
        marker_of_process[0] = name[0];
    }
    slots_ = static_cast<Slot*>(memory);
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

bool CrashMarker::quarantined(const std::filesystem::path& plugin) const {
    return std::find(quarantined_.begin(), quarantined_.end(), plugin.string()) != quarantined_.end();
}

void CrashMarker::forgive() {
    quarantined_.clear();
    culprit_.clear();
    if (!base_.empty()) ::unlink(quarantine_file().c_str());
}

}  // namespace foresay::plugins
