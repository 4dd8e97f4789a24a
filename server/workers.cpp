#include "server/workers.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/signals.h"

namespace foresay::server {

struct Workers::State {
    std::size_t most = 0;
    std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::function<void()>> waiting;
    bool stopping = false;
    std::vector<std::thread> threads;

    void work() {
        std::unique_lock lock(mutex);
        for (;;) {
            wake.wait(lock, [&] { return stopping || !waiting.empty(); });
            if (stopping) return;
            const std::function<void()> next = std::move(waiting.front());
            waiting.pop_front();
            lock.unlock();
            next();
            lock.lock();
        }
    }
};

Workers::Workers(std::size_t threads, std::size_t queue) : state_(std::make_unique<State>()) {
    state_->most = queue;
    const SignalsBlocked blocked;
    for (std::size_t i = 0; i < threads; ++i) state_->threads.emplace_back([this] { state_->work(); });
}

Workers::~Workers() { finish(); }

void Workers::finish() {
    std::deque<std::function<void()>> dropped;
    {
        const std::lock_guard lock(state_->mutex);
        state_->stopping = true;
        dropped.swap(state_->waiting);
    }
    state_->wake.notify_all();
    for (std::thread& thread : state_->threads) thread.join();
    state_->threads.clear();
}

bool Workers::post(std::function<void()> work) {
    {
        const std::lock_guard lock(state_->mutex);
        if (state_->stopping || state_->waiting.size() >= state_->most) return false;
        state_->waiting.push_back(std::move(work));
    }
    state_->wake.notify_one();
    return true;
}

}  // namespace foresay::server
