#include "server/loop_backend.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <utility>

#include "engine/engine_loop.h"
#include "server/error.h"

namespace foresay::server {

namespace {

using Clock = std::chrono::steady_clock;

// Hands the events of the loop on. A text that has ended by what it says is cancelled from within.
class LoopSink final : public speculative::Sink {
public:
    LoopSink(engine::EngineLoop& loop, std::atomic<std::size_t>& open, std::shared_ptr<TokenSink> sink)
        : loop_(loop), open_(open), sink_(std::move(sink)) {
        ++open_;
    }
    ~LoopSink() override {
        if (!ended_) --open_;
    }
    // The loop may have made tokens before add() returned the ticket.
    void know(speculative::Ticket ticket) {
        ticket_ = static_cast<std::uint64_t>(ticket);
        if (stopped_) loop_.cancel(ticket);
    }

    void token(const speculative::TokenEvent& event) override {
        if (event.token < 0 || stopped_) return;
        if (first_) first_token_ = Clock::now();
        first_ = false;
        if (!event.logprobs.empty()) probabilities_ = probabilities_of(event.logprobs);
        const GeneratedToken token{event.token, event.drafted, event.source,
                                   event.logprobs.empty() ? nullptr : &probabilities_};
        if (sink_->token(token)) return;
        stopped_ = true;
        const std::uint64_t ticket = ticket_;
        if (ticket != 0) loop_.cancel(speculative::Ticket{ticket});
    }

    void end(const speculative::BatchEnd& end) override {
        const speculative::GenerateResult& result = end.result;
        BackendEnd told;
        told.cached_tokens = result.cached_tokens;
        told.speculation = result.speculation;
        const auto ms = [](Clock::duration time) { return std::chrono::duration<double, std::milli>(time).count(); };
        told.first_token_ms = ms((first_ ? Clock::now() : first_token_) - submitted_);
        told.prompt_ms = result.prefill_ms > 0 ? result.prefill_ms : told.first_token_ms;
        told.queue_ms = std::max(0.0, told.first_token_ms - told.prompt_ms);
        told.generation_ms = first_ ? 0.0 : ms(Clock::now() - first_token_);
        if (!end.error.empty()) {
            told.finish = BackendEnd::Finish::failed;
            told.error = end.error;
        } else {
            told.finish = result.finish == speculative::FinishReason::stop       ? BackendEnd::Finish::stop
                          : result.finish == speculative::FinishReason::length   ? BackendEnd::Finish::length
                          : result.finish == speculative::FinishReason::deadline ? BackendEnd::Finish::deadline
                                                                                 : BackendEnd::Finish::cancelled;
        }
        ended_ = true;
        --open_;
        const std::shared_ptr<TokenSink> sink = std::exchange(sink_, nullptr);
        sink->end(told);
    }

private:
    engine::EngineLoop& loop_;
    std::atomic<std::size_t>& open_;
    std::shared_ptr<TokenSink> sink_;
    std::atomic<std::uint64_t> ticket_{0};
    std::atomic<bool> stopped_{false};
    bool first_ = true, ended_ = false;
    Clock::time_point submitted_ = Clock::now(), first_token_;
    TokenProbabilities probabilities_;
};

engine::BatchOptions options_of(std::size_t parallel) {
    engine::BatchOptions options;
    options.sequences = static_cast<std::int32_t>(parallel);
    return options;
}

}  // namespace

struct LoopBackend::State {
    State(const engine::Engine& engine, std::size_t parallel, std::size_t queue)
        : most(parallel + queue), loop(engine, options_of(parallel)) {}
    const std::size_t most;
    std::atomic<std::size_t> open{0};
    std::atomic<bool> stopped{false};
    engine::EngineLoop loop;
};

std::string salt_of(const BackendRequest& request, bool shared_by_queues) {
    // One that no other text has: nothing is shared.
    static std::atomic<std::uint64_t> number{0};
    if (!request.reuse) return "alone " + std::to_string(++number);
    return shared_by_queues || request.queue.empty() ? "" : "queue " + request.queue;
}

LoopBackend::LoopBackend(const engine::Engine& engine, std::size_t parallel, std::size_t queue, bool shared)
    : state_(std::make_unique<State>(engine, parallel, queue)), parallel_(parallel), shared_(shared) {}

LoopBackend::~LoopBackend() { stop(); }

void LoopBackend::stop() {
    state_->stopped = true;
    state_->loop.stop();
}

Ticket LoopBackend::submit(BackendRequest request, std::shared_ptr<TokenSink> sink) {
    if (state_->open >= state_->most) {
        ApiError busy(Problem::busy, "too many requests wait already; come again", "queue_full");
        busy.retry_after = 1;
        throw busy;
    }
    engine::BatchRequest one;
    one.input = std::move(request.prompt);
    one.chain = std::move(request.chain);
    one.max_tokens = request.max_tokens;
    one.seed = request.seed;
    one.branch = request.branch;
    one.ignore_eos = request.ignore_eos;
    one.logprobs = request.alternatives;
    one.prediction = std::move(request.prediction);
    one.speculation = request.speculation;
    one.priority = request.priority;
    one.cache_salt = salt_of(request, shared_);
    one.queue = std::move(request.queue);
    one.deadline = request.deadline;
    one.outlasts = request.reuse;
    const auto held = std::make_shared<LoopSink>(state_->loop, state_->open, std::move(sink));
    try {
        const speculative::Ticket ticket = state_->loop.add(std::move(one), held);
        held->know(ticket);
        return static_cast<Ticket>(ticket);
    } catch (const Error& problem) {
        if (state_->stopped) throw stopping();
        throw ApiError(Problem::invalid, problem.what(), "invalid_value");
    }
}

void LoopBackend::cancel(Ticket ticket) { state_->loop.cancel(speculative::Ticket{ticket}); }

void LoopBackend::pause(Ticket ticket, bool paused) {
    if (parallel_ == 1) return;  // all others would wait for its reader
    if (paused) {
        state_->loop.pause(speculative::Ticket{ticket});
    } else {
        state_->loop.resume(speculative::Ticket{ticket});
    }
}

std::size_t LoopBackend::running() const { return std::min<std::size_t>(state_->open, parallel_); }
CacheStatus LoopBackend::cache() const {
    const engine::LoopStatus status = state_->loop.status();
    return {status.kv_pages, status.kv_pages_used, status.counters.preemptions, status.pages};
}
std::size_t LoopBackend::waiting() const {
    const std::size_t open = state_->open;
    return open > parallel_ ? open - parallel_ : 0;
}

}  // namespace foresay::server
