// server/loop_backend.h: answers requests with an EngineLoop, side by side or one after the other: rows of all that run
// share forwards, beginnings are kept, and each text is drafted for as far as that pays: from itself, and by the draft
// model where the engine has one.
//
// Threads:  that of the loop; see backend.h.
// Errors:   the constructor throws Error where the batch cannot be made.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/engine.h"
#include "server/backend.h"

namespace foresay::server {

class LoopBackend final : public Backend {
public:
    // At most `parallel` texts at once, and `queue` that wait. `shared`: texts of different queues share beginnings.
    LoopBackend(const engine::Engine& engine, std::size_t parallel, std::size_t queue, bool shared);
    ~LoopBackend() override;

    Ticket submit(BackendRequest request, std::shared_ptr<TokenSink> sink) override;
    void cancel(Ticket ticket) override;
    void pause(Ticket ticket, bool paused) override;
    void stop() override;
    std::size_t running() const override;
    std::size_t waiting() const override;
    std::size_t most_running() const override { return parallel_; }
    CacheStatus cache() const override;

private:
    struct State;
    std::unique_ptr<State> state_;
    std::size_t parallel_;
    bool shared_;
};

}  // namespace foresay::server
