// The thread pool: every item runs once, whatever the sizes, also when pools and loops are nested or threads fall
// asleep.

#include "kernels/cpu/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

namespace foresay::kernels::cpu {
namespace {

#ifdef FORESAY_SANITIZED
constexpr int kLoops = 600;
#else
constexpr int kLoops = 4000;
#endif

class ThreadPools : public testing::TestWithParam<int> {};

TEST_P(ThreadPools, EveryItemOnceInEveryLoop) {
    ThreadPool pool(GetParam());
    ASSERT_EQ(pool.threads(), GetParam());
    std::minstd_rand random(1);
    std::vector<int> seen;  // not atomic: each item belongs to one thread, and run() is a barrier
    for (int loop = 0; loop < kLoops / GetParam(); ++loop) {
        const int items = static_cast<int>(random() % (loop % 100 == 0 ? 3000 : 40));
        const int grain = 1 + static_cast<int>(random() % 9);
        seen.assign(static_cast<std::size_t>(items), 0);
        std::atomic<int> calls = 0;
        std::atomic<bool> in_range = true;
        pool.run(items, grain, [&](int begin, int end, int thread) {
            ++calls;
            const bool whole = pool.threads() == 1 || items <= grain;
            if (begin < 0 || begin >= end || end > items || (!whole && end - begin > grain) || thread < 0 ||
                thread >= pool.threads()) {
                in_range = false;
            }
            for (int i = begin; i < end; ++i) seen[static_cast<std::size_t>(i)] += loop + 1;
        });
        ASSERT_TRUE(in_range) << "loop " << loop;
        ASSERT_EQ(calls == 0, items == 0);
        for (int i = 0; i < items; ++i) ASSERT_EQ(seen[static_cast<std::size_t>(i)], loop + 1) << "item " << i;
    }
}

TEST_P(ThreadPools, WhatOneLoopWroteTheNextOneReads) {
    ThreadPool pool(GetParam());
    const int items = 257;
    std::vector<std::int64_t> a(items), b(items);
    std::iota(a.begin(), a.end(), 0);
    for (int loop = 0; loop < kLoops / 20; ++loop) {
        pool.run(items, 3, [&](int begin, int end, int) {
            for (int i = begin; i < end; ++i)
                b[static_cast<std::size_t>(i)] = a[static_cast<std::size_t>((i * 7 + 3) % items)] + 1;
        });
        std::swap(a, b);
    }
    std::int64_t sum = 0;
    for (const std::int64_t value : a) sum += value;
    EXPECT_EQ(sum, std::int64_t{items} * (items - 1) / 2 + std::int64_t{items} * (kLoops / 20));
}

TEST_P(ThreadPools, EachThreadHasANumberOfItsOwn) {
    ThreadPool pool(GetParam());
    std::vector<std::atomic<int>> busy(static_cast<std::size_t>(pool.threads()));
    std::atomic<bool> alone = true;
    for (int loop = 0; loop < 200; ++loop) {
        pool.run(64, 1, [&](int, int, int thread) {
            std::atomic<int>& mine = busy[static_cast<std::size_t>(thread)];
            if (mine.fetch_add(1) != 0) alone = false;
            for (int i = 0; i < 50; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
            mine.fetch_sub(1);
        });
    }
    EXPECT_TRUE(alone) << "two threads had the same number at once";
}

// Workers spin for 300 microseconds and then sleep: pauses around that length hit every step of going to sleep.
TEST_P(ThreadPools, SleepingWorkersWake) {
    ThreadPool pool(GetParam());
    std::minstd_rand random(2);
    for (int loop = 0; loop < 150; ++loop) {
        std::this_thread::sleep_for(std::chrono::microseconds(loop % 10 == 0 ? 3000 : random() % 700));
        std::vector<int> seen(32);
        pool.run(32, 1, [&](int begin, int end, int) {
            for (int i = begin; i < end; ++i) {
                ++seen[static_cast<std::size_t>(i)];
                // Long enough for a woken worker to take part.
                const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(5);
                while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
            }
        });
        ASSERT_EQ(std::count(seen.begin(), seen.end(), 1), 32);
    }
}

TEST_P(ThreadPools, WorkersTakePart) {
    ThreadPool pool(GetParam());
    std::vector<std::atomic<int>> items(static_cast<std::size_t>(pool.threads()));
    const auto all = [&] {
        return std::all_of(items.begin(), items.end(), [](const auto& count) { return count > 0; });
    };
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (!all() && std::chrono::steady_clock::now() < deadline) {
        pool.run(64, 1, [&](int, int, int thread) {
            ++items[static_cast<std::size_t>(thread)];
            std::this_thread::sleep_for(std::chrono::microseconds(50));
        });
    }
    EXPECT_TRUE(all()) << "a worker never got an item";
}

TEST_P(ThreadPools, EndAtAnyMoment) {
    std::minstd_rand random(3);
    for (int i = 0; i < 60; ++i) {
        auto pool = std::make_unique<ThreadPool>(GetParam());
        std::atomic<int> sum = 0;
        for (unsigned loop = random() % 3; loop > 0; --loop)
            pool->run(10, 1, [&](int begin, int end, int) { sum += end - begin; });
        EXPECT_EQ(sum % 10, 0);
        if (i % 5 == 0) std::this_thread::sleep_for(std::chrono::microseconds(random() % 900));
        pool.reset();
    }
}

// A pool may live and end inside a loop of another one.
TEST_P(ThreadPools, Nest) {
    ThreadPool outer(GetParam());
    std::atomic<int> sum = 0;
    for (int loop = 0; loop < 5; ++loop) {
        outer.run(8, 1, [&](int begin, int end, int) {
            for (int i = begin; i < end; ++i) {
                ThreadPool inner(2);
                inner.run(100, 7, [&](int from, int to, int) { sum += to - from; });
            }
        });
    }
    EXPECT_EQ(sum, 5 * 8 * 100);
}

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPools, testing::Values(1, 2, 3, 4, 7),
                         [](const auto& info) { return std::to_string(info.param) + "_threads"; });

TEST(ThreadPool, HasAtLeastTheCaller) {
    EXPECT_EQ(ThreadPool(0).threads(), 1);
    EXPECT_EQ(ThreadPool(-3).threads(), 1);
    EXPECT_GE(usable_cores(), 1);
}

TEST(ThreadPool, TwoTeamsWorkSideBySide) {
    const auto work = [] {
        ThreadPool pool(2);
        for (int loop = 0; loop < kLoops / 40; ++loop) {
            std::atomic<int> sum = 0;
            pool.run(20, 1, [&](int begin, int, int) { sum += begin; });
            ASSERT_EQ(sum, 190);
        }
    };
    std::thread other(work);
    work();
    other.join();
}

}  // namespace
}  // namespace foresay::kernels::cpu
