// engine/engine_loop.h: an engine at work for many callers: requests from any thread, run together on a thread of the
// loop's own (speculative/batch_generator.h). What a server stands on:
//
//     const engine::Engine engine = engine::Engine::open(engine::load_config("pair.toml"));
//     engine::EngineLoop loop(engine, {.sequences = 16});
//     const engine::Ticket ticket = loop.add({.input = engine.tokenizer().encode("Once"), .chain = {}}, sink);
//
// Life:     destroy the loop before its engine. stop() and the destructor end what is left as cancelled, so every sink
//           gets its end().
// Threads:  any thread may call anything. Sinks are called on the loop's thread; they must return soon and may add,
//           cancel, pause and resume. While a loop lives, nothing else may generate with its engine; make_chain(),
//           chain_spec() and tokenizer() may be called by any thread.
// Cost:     add() checks the request on the caller's thread, and waits for no forward.
// Errors:   the constructor and add() throw Error. What goes wrong with one request ends it alone. Where the backend
//           itself fails, every request ends with its sentence, and add() throws it from then on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/batch.h"
#include "engine/engine.h"
#include "speculative/batch_generator.h"

namespace foresay::engine {

using speculative::BatchEnd;
using speculative::BatchRequest;
using speculative::Sink;
using speculative::Ticket;

struct LoopStatus {
    std::size_t running = 0;  // requests that are being answered
    std::size_t waiting = 0;  // requests that wait for a place
    speculative::BatchCounters counters;
    core::PageCounters pages;
    std::int32_t kv_pages = 0;       // of the KV cache
    std::int32_t kv_pages_used = 0;  // of those, by running requests; a tenth of a second old at most while they run
};

class EngineLoop {
public:
    // Starts the thread.
    explicit EngineLoop(const Engine& engine, const BatchOptions& options = {});
    ~EngineLoop();
    EngineLoop(const EngineLoop&) = delete;
    EngineLoop& operator=(const EngineLoop&) = delete;

    // Keeps `sink` until its end(). Without a chain the request gets that of the configuration. Its deadline is by
    // speculative::steady_now().
    Ticket add(BatchRequest request, std::shared_ptr<Sink> sink);
    // As those of the batch. They take effect before the next forward.
    void cancel(Ticket ticket);
    void pause(Ticket ticket);
    void resume(Ticket ticket);
    // Ends all requests as cancelled and the thread with them; add() then throws. Not for sinks.
    void stop();

    // As of the last forward.
    LoopStatus status() const;

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace foresay::engine
