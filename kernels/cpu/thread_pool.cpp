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

struct ThreadPool::Team {
    // The loop in flight; written by run() before the epoch moves on.
    Call call = nullptr;
    const void* body = nullptr;
    int items = 0;
    int grain = 1;

    alignas(64) std::atomic<std::uint32_t> epoch{0};  // one more for every loop; the stop flag ends the workers
    std::atomic<bool> stop{false};
    alignas(64) std::atomic<int> next{0};     // first item that nobody has taken
    alignas(64) std::atomic<int> running{0};  // workers that have not finished this loop
    alignas(64) std::atomic<int> sleeping{0};
    std::vector<std::thread> workers;

    void work(int thread) {
        for (;;) {
            const int begin = next.fetch_add(grain, std::memory_order_relaxed);
            if (begin >= items) return;
            call(body, begin, std::min(begin + grain, items), thread);
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
            work(thread);
            running.fetch_sub(1, std::memory_order_release);
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
    team.call = call;
    team.body = body;
    team.items = items;
    team.grain = std::max(1, grain);
    team.next.store(0, std::memory_order_relaxed);
    team.running.store(threads_ - 1, std::memory_order_relaxed);
    team.advance();
    team.work(0);
    const auto done = [&] { return team.running.load(std::memory_order_acquire) == 0; };
    while (!spin_until(done)) std::this_thread::yield();
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
