// server/backend.h: what generates: token ids in, token ids out. It knows no protocol and no text.
//
// Life:     a Backend outlives the requests that it was given; its destructor ends them.
// Threads:  submit(), cancel(), pause() and the counters from any thread. Sinks are called from the backend's own
//           thread and must return soon, because other requests wait.
// Errors:   submit() throws ApiError (busy) when too many wait. What goes wrong later is told to the sink's end().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/cache/page_store.h"
#include "samplers/chain.h"
#include "speculative/generator.h"

namespace foresay::server {

using Ticket = std::uint64_t;

struct BackendRequest {
    std::vector<std::int32_t> prompt;        // at least one, fewer than the context holds
    std::unique_ptr<samplers::Chain> chain;  // its own
    std::int32_t max_tokens = 0;             // 0: to the end of the context
    std::uint64_t seed = 0, branch = 0;
    bool ignore_eos = false;
    speculative::SpeculationOptions speculation;
    int alternatives = -1;                 // log probabilities: how many of the likeliest; -1: none at all
    std::vector<std::int32_t> prediction;  // what the answer may be; drafted from where the backend can
    int priority = 0;                      // who runs when not all can: a higher one first
    // Requests of one queue, a key's, take turns with those of others. Queues share beginnings of texts only where the
    // backend was told so: whether a beginning was known shows in the time to the first token.
    std::string queue;
    bool reuse = true;  // a beginning that was evaluated before may be used again
    // By speculative::steady_now(): when the text ends with what it has. One that waits takes no place then. 0: never.
    double deadline = 0.0;
};

// Texts of one salt share beginnings.
std::string salt_of(const BackendRequest& request, bool shared_by_queues);

struct TokenProbability {
    std::int32_t token = 0;
    float log_probability = 0.0f;
};

// Of one generated token, by the model's own distribution, before any sampler stage.
struct TokenProbabilities {
    float log_probability = 0.0f;
    std::vector<TokenProbability> alternatives;  // likeliest first
};

// As speculative/logprobs.h lists them: the token's own, then the likeliest.
inline TokenProbabilities probabilities_of(std::span<const speculative::TokenLogprob> logprobs) {
    TokenProbabilities out;
    out.log_probability = logprobs.front().logprob;
    for (const speculative::TokenLogprob& each : logprobs.subspan(1)) {
        out.alternatives.push_back({each.token, each.logprob});
    }
    return out;
}

struct GeneratedToken {
    std::int32_t token = 0;
    bool drafted = false;
    std::string_view source;  // the drafter's name when drafted
    // With BackendRequest::alternatives; else null.
    const TokenProbabilities* probabilities = nullptr;
};

struct BackendEnd {
    enum class Finish : std::uint8_t { stop, length, cancelled, failed, deadline };
    Finish finish = Finish::length;
    std::string error;               // of failed: one sentence
    std::int64_t cached_tokens = 0;  // of the prompt, that were not evaluated again
    double queue_ms = 0.0, prompt_ms = 0.0, first_token_ms = 0.0, generation_ms = 0.0;
    speculative::SpeculationStatistics speculation;
};

// Receives one text. end() is the last call, and comes always.
class TokenSink {
public:
    virtual ~TokenSink() = default;
    // False: the text ends with this token.
    virtual bool token(const GeneratedToken& token) = 0;
    virtual void end(const BackendEnd& end) = 0;
};

// About the KV cache and the pages that are kept outside it.
struct CacheStatus {
    std::int64_t pages = 0, pages_used = 0;  // of the cache: all, and those of texts that are generated; 0: not known
    std::int64_t preemptions = 0;            // times that a text gave its pages up for others
    core::PageCounters kept;
};

class Backend {
public:
    virtual ~Backend() = default;
    virtual Ticket submit(BackendRequest request, std::shared_ptr<TokenSink> sink) = 0;
    // No token comes any more, and end() soon. A ticket that has ended is ignored, here and below.
    virtual void cancel(Ticket ticket) = 0;
    // Whether the text takes a rest, because its reader is slow. A hint.
    virtual void pause(Ticket ticket, bool paused) = 0;
    // Ends what is left as cancelled, and the thread; submit() then tells to come again. Not for sinks.
    virtual void stop() = 0;
    virtual std::size_t running() const = 0;
    virtual std::size_t waiting() const = 0;
    virtual std::size_t most_running() const = 0;
    virtual CacheStatus cache() const { return {}; }
};

}  // namespace foresay::server
