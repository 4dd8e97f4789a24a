#include "plugins/host/isolated_memory.h"

#include <errno.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <new>
#include <string>
#include <thread>

#include "base/error.h"

namespace foresay::plugins {
namespace {

// Of a waiting side before it sleeps: about 2 us, since where both sides share a core, spinning only keeps the other
// one waiting. On more cores about 30, in which a program comes back with the next row of a draft: to wake a side that
// sleeps takes longer than most calls.
constexpr int kFewSpins = 50, kManySpins = 700;
constexpr unsigned kManyCores = 4;

// First asked before a process is started, which may not ask for the number of cores.
int spins() {
    static const int most = std::thread::hardware_concurrency() >= kManyCores ? kManySpins : kFewSpins;
    return most;
}

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* patience) {
    return ::syscall(SYS_futex, reinterpret_cast<std::uint32_t*>(&word), operation, value, patience, nullptr, 0);
}

void pause_a_moment() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

}  // namespace

IsolatedMemory::IsolatedMemory(std::int32_t vocabulary) : room_(static_cast<std::size_t>(std::max(vocabulary, 1))) {
    constexpr std::size_t kPage = 4096;
    const auto take = [&](std::size_t bytes) {
        const std::size_t begin = bytes_;
        bytes_ += (bytes + kPage - 1) / kPage * kPage;
        return begin;
    };
    take(sizeof(IsolatedHead));
    at_history_ = take(kHistoryRoom * sizeof(std::int32_t));
    at_ids_ = take(room_ * sizeof(std::int32_t));
    at_logits_ = take(room_ * sizeof(float));
    at_keep_ = take(room_);
    at_bits_ = take(words() * sizeof(std::uint32_t));
    at_forced_ = take(kForcedRoom);
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data_ == MAP_FAILED) throw Error(std::string("no memory can be shared: ") + std::strerror(errno));
    spins();
    reset();
}

IsolatedMemory::~IsolatedMemory() { ::munmap(data_, bytes_); }

void hand_over(IsolatedHead& head, std::uint32_t next) {
    head.turn.store(next);
    const auto& sleeps = next == 0 ? head.program_sleeps : head.sampler_sleeps;
    if (sleeps.load() != 0) futex(head.turn, FUTEX_WAKE, 1, nullptr);
}

bool wait_a_while(IsolatedHead& head, std::uint32_t other, std::uint32_t most_ms) {
    for (int left = spins(); left > 0; --left) {
        if (head.turn.load(std::memory_order_acquire) != other) return true;
        pause_a_moment();
    }
    auto& sleeps = other == 1 ? head.program_sleeps : head.sampler_sleeps;
    const timespec most{static_cast<time_t>(most_ms / 1000), static_cast<long>(most_ms % 1000) * 1000000};
    sleeps.store(1);
    if (head.turn.load() == other) futex(head.turn, FUTEX_WAIT, other, &most);
    sleeps.store(0);
    return head.turn.load(std::memory_order_acquire) != other;
}

}  // namespace foresay::plugins
