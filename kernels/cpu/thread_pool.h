// kernels/cpu/thread_pool.h: a fixed number of threads that run short parallel loops, each with a barrier at its end.
//
// Threads:  run() is called by one thread at a time, which takes part in the work. Workers spin for a short while after
//           a loop, because decoding issues several hundred loops per token, and then sleep.
// Cost:     a loop on spinning workers starts and ends in well under a microsecond.
// Errors:   the constructor throws Error when threads cannot be started. Loop bodies must not throw.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <type_traits>

namespace foresay::kernels::cpu {

class ThreadPool {
public:
    explicit ThreadPool(int threads);  // counting the caller; at least 1
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int threads() const { return threads_; }

    // Calls body(begin, end, thread) on ranges that cover [0, items), each of at most `grain` items (one range if there
    // is one thread). Free threads take ranges one by one, in no specified order. Returns when all are done.
    template <class Body>
    void run(int items, int grain, const Body& body) {
        static_assert(std::is_invocable_v<const Body&, int, int, int>);
        if (items <= 0) return;
        if (threads_ == 1 || items <= grain) {
            body(0, items, 0);
            return;
        }
        run_erased(
            items, grain,
            [](const void* b, int begin, int end, int thread) { (*static_cast<const Body*>(b))(begin, end, thread); },
            &body);
    }

private:
    using Call = void (*)(const void*, int, int, int);
    struct Team;

    void run_erased(int items, int grain, Call call, const void* body);

    int threads_;
    std::unique_ptr<Team> team_;
};

// Cores that this process may use: those of the affinity mask, limited by the cgroup's CPU quota.
int usable_cores();

}  // namespace foresay::kernels::cpu
