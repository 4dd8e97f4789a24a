// server/generator_backend.h: answers requests one after another on one Generator, with everything that it can do:
// speculation, log probabilities, and the cache of what the last texts have in common with the next one.
//
// Threads:  one of its own; see backend.h.
// Errors:   the constructor throws Error where the generator cannot be made.
#pragma once

#include <cstddef>
#include <memory>

#include "engine/engine.h"
#include "server/backend.h"

namespace foresay::server {

class GeneratorBackend final : public Backend {
public:
    // At most `queue` requests wait.
    GeneratorBackend(const engine::Engine& engine, std::size_t queue);
    ~GeneratorBackend() override;

    Ticket submit(BackendRequest request, std::shared_ptr<TokenSink> sink) override;
    void cancel(Ticket ticket) override;
    void pause(Ticket ticket, bool paused) override;
    void stop() override;
    std::size_t running() const override;
    std::size_t waiting() const override;
    std::size_t most_running() const override { return 1; }

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace foresay::server
