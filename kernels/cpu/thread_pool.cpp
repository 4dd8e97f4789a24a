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
#include "base/signals.h"

namespace foresay::kernels::cpu {
namespace {

// How long an idle worker spins before it sleeps: longer than sampling between two forwards takes, and short enough
// that an idle program uses no noticeable processor time.
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

// A loop is cut into units of `grain` items. Each thread owns a slot with an equal share of the units, in its own cache
// line, so taking a unit is normally uncontended. A thread whose slot is empty steals from the other slots. A worker
// that the system has descheduled therefore delays nothing unless it is in the middle of a unit: others take the rest.
struct ThreadPool::Team {
    // A slot: loop number in the upper half, then first and end unit, 16 bits each. Loop numbers do not repeat, so the
    // compare-and-exchange of a late thread fails once its loop is over.
    struct alignas(64) Slot {
        std::atomic<std::uint64_t> units{0};
    };
    static constexpr int kMaxUnits = 0xffff;
    static std::uint64_t pack(std::uint32_t number, int begin, int end) {
        return static_cast<std::uint64_t>(number) << 32 | static_cast<std::uint64_t>(begin) << 16 |
               static_cast<std::uint64_t>(end);
    }

    // The running loop, in one cache line with its number. A late thread may read the fields of a later loop than the
    // one it works on. It cannot take a unit then: its own loop is over, so its compare-and-exchange on the slot fails,
    // and the acquire loads order the fields before it.
    alignas(64) std::atomic<std::uint32_t> epoch{0};  // number of the loop; sleepers wait on it
    std::atomic<int> items{0};
    std::atomic<int> grain{1};
    std::atomic<Call> call{nullptr};
    std::atomic<const void*> body{nullptr};
    std::atomic<bool> stop{false};
    alignas(64) std::atomic<int> done{0};  // units of this loop that are finished
    alignas(64) std::atomic<int> sleeping{0};
    std::vector<Slot> slots;
    std::vector<std::thread> workers;

    // Takes and runs units of loop `number` from `slot`; returns how many.
    int drain(Slot& slot, std::uint32_t number, int thread) {
        int taken = 0;
        for (;;) {
            std::uint64_t now = slot.units.load(std::memory_order_acquire);
            const int unit = static_cast<int>(now >> 16 & 0xffff), end = static_cast<int>(now & 0xffff);
            if (now >> 32 != number || unit >= end) return taken;
            const int count = items.load(std::memory_order_acquire), step = grain.load(std::memory_order_acquire);
            const Call run = call.load(std::memory_order_acquire);
            const void* with = body.load(std::memory_order_acquire);
            if (!slot.units.compare_exchange_weak(now, pack(number, unit + 1, end), std::memory_order_acq_rel))
                continue;
            run(with, unit * step, std::min((unit + 1) * step, count), thread);
            ++taken;
        }
    }

    void work(std::uint32_t number, int thread) {
        const int threads = static_cast<int>(slots.size());
        for (int i = 0; i < threads; ++i) {
            const int taken = drain(slots[static_cast<std::size_t>((thread + i) % threads)], number, thread);
            if (taken > 0) done.fetch_add(taken, std::memory_order_release);
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
    team_->slots = std::vector<Team::Slot>(static_cast<std::size_t>(threads_));
    try {
        const SignalsBlocked blocked;
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
    grain = std::max<int>({1, grain, (items - 1) / Team::kMaxUnits + 1});
    const int units = (items - 1) / grain + 1;
    const std::uint32_t number = team.epoch.load(std::memory_order_relaxed) + 1;
    team.items.store(items, std::memory_order_release);
    team.grain.store(grain, std::memory_order_release);
    team.call.store(call, std::memory_order_release);
    team.body.store(body, std::memory_order_release);
    team.done.store(0, std::memory_order_relaxed);
    for (int i = 0; i < threads_; ++i) {
        const auto share = [&](int part) {
            return static_cast<int>(static_cast<std::int64_t>(units) * part / threads_);
        };
        team.slots[static_cast<std::size_t>(i)].units.store(Team::pack(number, share(i), share(i + 1)),
                                                            std::memory_order_release);
    }
    team.advance();
    team.work(number, 0);
    const auto finished = [&] { return team.done.load(std::memory_order_acquire) == units; };
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
