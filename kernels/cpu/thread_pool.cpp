#include "kernels/cpu/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#include "base/error.h"

namespace foresay::kernels::cpu {
namespace {

// How long an idle worker spins before it sleeps. Long enough to bridge the sampling between two forwards, short enough
// that an idle program uses no processor time.
constexpr auto kSpin = std::chrono::microseconds(300);

inline void pause() {
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// Spins until `ready` holds or the time is up.
template <class Ready>
bool spin_until(const Ready& ready) {
    for (int i = 0; i < 512; ++i) {
        if (ready()) return true;
        pause();
    }
    const auto end = std::chrono::steady_clock::now() + kSpin;
    while (std::chrono::steady_clock::now() < end) {
        for (int i = 0; i < 64; ++i) {
            if (ready()) return true;
            pause();
        }
    }
    return ready();
}

}  // namespace

// A loop is handed out through one 64-bit ticket: its number in the upper half, the next free item in the lower. A worker
// that is late, because the system gave its core to somebody else, finds the loop closed and holds nobody up; only a
// worker that has taken a range is waited for.
struct ThreadPool::Team {
    static constexpr std::uint64_t kClosed = 0xffffffffu;  // lower half: nothing to take

    // The loop in flight. Written while the ticket is closed, so that no range can be taken under mixed fields; release
    // and acquire order them against the ticket.
    std::atomic<Call> call{nullptr};
    std::atomic<const void*> body{nullptr};
    std::atomic<int> items{0};
    std::atomic<int> grain{1};

    alignas(64) std::atomic<std::uint64_t> ticket{kClosed};
    alignas(64) std::atomic<int> done{0};             // items of this loop that are finished
    alignas(64) std::atomic<std::uint32_t> epoch{0};  // what sleepers wait on: one more for every loop and at the end
    std::atomic<int> sleeping{0};
    std::atomic<bool> stop{false};
    std::vector<std::thread> workers;

    // Takes ranges of loop `number` until none is left.
    void work(std::uint32_t number, int thread) {
        for (;;) {
            std::uint64_t now = ticket.load(std::memory_order_acquire);
            const auto begin = static_cast<std::int64_t>(now & kClosed);
            const int count = items.load(std::memory_order_acquire), step = grain.load(std::memory_order_acquire);
            const Call run = call.load(std::memory_order_acquire);
            const void* with = body.load(std::memory_order_acquire);
            if (now >> 32 != number || begin >= count) return;
            const auto end = static_cast<int>(std::min<std::int64_t>(begin + step, count));
            if (!ticket.compare_exchange_weak(now, (now & ~kClosed) | static_cast<std::uint32_t>(end))) continue;
            run(with, static_cast<int>(begin), end, thread);
            done.fetch_add(end - static_cast<int>(begin), std::memory_order_release);
        }
    }

    void worker(int thread) {
        std::uint32_t seen = 0;
        for (;;) {
            const auto moved = [&] { return epoch.load(std::memory_order_acquire) != seen; };
            if (!spin_until(moved)) {
                sleeping.fetch_add(1);
                while (!moved()) epoch.wait(seen);
                sleeping.fetch_sub(1);
            }
            seen = epoch.load(std::memory_order_acquire);
            if (stop.load(std::memory_order_relaxed)) return;
            work(seen, thread);
        }
    }

    void advance() {
        epoch.fetch_add(1);  // sequentially consistent: either the sleeper sees it or we see the sleeper
        if (sleeping.load() != 0) epoch.notify_all();
    }
};

ThreadPool::ThreadPool(int threads) : threads_(std::max(1, threads)) {
    if (threads_ == 1) return;
    team_ = std::make_unique<Team>();
    try {
        for (int i = 1; i < threads_; ++i) team_->workers.emplace_back([this, i] { team_->worker(i); });
    } catch (const std::system_error&) {
        team_->stop = true;
        team_->advance();
        for (std::thread& worker : team_->workers) worker.join();
        throw Error("cannot start " + std::to_string(threads_) + " threads; ask for fewer with --threads");
    }
}

ThreadPool::~ThreadPool() {
    if (!team_) return;
    team_->stop.store(true, std::memory_order_relaxed);
    team_->advance();
    for (std::thread& worker : team_->workers) worker.join();
}

void ThreadPool::run_erased(int items, int grain, Call call, const void* body) {
    Team& team = *team_;
    const std::uint32_t number = team.epoch.load(std::memory_order_relaxed) + 1;
    const std::uint64_t upper = static_cast<std::uint64_t>(number) << 32;
    team.ticket.store(upper | Team::kClosed, std::memory_order_release);
    team.call.store(call, std::memory_order_release);
    team.body.store(body, std::memory_order_release);
    team.items.store(items, std::memory_order_release);
    team.grain.store(std::max(1, grain), std::memory_order_release);
    team.done.store(0, std::memory_order_relaxed);
    team.ticket.store(upper, std::memory_order_release);
    team.advance();
    team.work(number, 0);
    const auto finished = [&] { return team.done.load(std::memory_order_acquire) == items; };
    while (!spin_until(finished)) std::this_thread::yield();
}

int usable_cores() {
    int cores = static_cast<int>(std::thread::hardware_concurrency());
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) == 0) cores = CPU_COUNT(&set);
    if (std::FILE* file = std::fopen("/sys/fs/cgroup/cpu.max", "r")) {
        long long quota = 0, period = 0;
        if (std::fscanf(file, "%lld %lld", &quota, &period) == 2 && quota > 0 && period > 0) {
            cores =
                std::min(cores, static_cast<int>(std::ceil(static_cast<double>(quota) / static_cast<double>(period))));
        }
        std::fclose(file);
    }
    return std::max(1, cores);
}

}  // namespace foresay::kernels::cpu
