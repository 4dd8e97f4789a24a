// The callers' side writes orders into an inbox; the thread takes them over before each forward.
#include "engine/engine_loop.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "samplers/chain.h"

namespace foresay::engine {
namespace {

enum class Kind : std::uint8_t { add, cancel, pause, resume };

struct Order {
    Kind kind = Kind::add;
    Ticket ticket{};
    BatchRequest request;  // of Kind::add, as the next one
    std::shared_ptr<Sink> sink;
};

}  // namespace

struct EngineLoop::State {
    const Engine& engine;
    speculative::BatchGenerator batch;

    mutable std::mutex mutex;  // guards all up to `thread`
    std::condition_variable woken;
    std::vector<Order> inbox;
    std::uint64_t tickets = 0;
    std::size_t arriving = 0;  // requests in the inbox and in `taken`
    bool stopping = false;
    std::string broken;  // why nothing runs any more; empty: it does
    LoopStatus last;

    // Used by the thread alone.
    std::vector<Order> taken;
    std::unordered_map<std::uint64_t, std::shared_ptr<Sink>> sinks;  // by ticket
    std::vector<std::uint64_t> ended;
    double counted_ms = -1e9;  // when the pages of the KV cache were counted

    std::mutex stop_mutex;  // one stop() at a time
    std::thread thread;

    State(const Engine& of, const BatchOptions& options) : engine(of), batch(of.make_batch(options)) {}

    void run();
    bool wait_for_orders(bool idle);
    void obey();
    void forget_ended();
    void finish_all(const std::string& error);
    void publish();
};

namespace {

// Between the batch and the caller's sink: notes which tickets have ended.
class Forwarder final : public Sink {
public:
    Forwarder(std::shared_ptr<Sink> to, std::uint64_t ticket, std::vector<std::uint64_t>& ended)
        : to_(std::move(to)), ticket_(ticket), ended_(ended) {}
    void token(const speculative::TokenEvent& event) override { to_->token(event); }
    void end(const BatchEnd& end) override {
        to_->end(end);
        ended_.push_back(ticket_);
    }

private:
    std::shared_ptr<Sink> to_;
    std::uint64_t ticket_;
    std::vector<std::uint64_t>& ended_;
};

}  // namespace

// Takes over what the callers want; sleeps while there is nothing to do, until the next deadline. False: the loop
// stops.
bool EngineLoop::State::wait_for_orders(bool idle) {
    constexpr double kLongestMs = 60'000.0;
    std::unique_lock lock(mutex);
    if (idle) {
        const auto due = [this] { return stopping || !inbox.empty(); };
        const double deadline = batch.next_deadline();
        if (std::isinf(deadline)) {
            woken.wait(lock, due);
        } else {
            const double ms = std::clamp(deadline - speculative::steady_now(), 0.0, kLongestMs);
            woken.wait_for(lock, std::chrono::duration<double, std::milli>(ms), due);
        }
    }
    if (stopping) return false;
    taken.clear();
    std::swap(taken, inbox);
    return true;
}

void EngineLoop::State::obey() {
    for (Order& order : taken) {
        switch (order.kind) {
            case Kind::add: {
                const auto number = static_cast<std::uint64_t>(order.ticket);
                auto& sink = sinks[number];
                sink = std::make_shared<Forwarder>(std::move(order.sink), number, ended);
                check(batch.add(std::move(order.request), *sink) == order.ticket, "tickets count the requests");
                break;
            }
            case Kind::cancel:
                batch.cancel(order.ticket);
                break;
            case Kind::pause:
                batch.pause(order.ticket);
                break;
            case Kind::resume:
                batch.resume(order.ticket);
                break;
        }
    }
}

void EngineLoop::State::publish() {
    const std::scoped_lock lock(mutex);
    arriving -= static_cast<std::size_t>(
        std::ranges::count_if(taken, [](const Order& order) { return order.kind == Kind::add; }));
    taken.clear();
    last.running = batch.running();
    last.waiting = batch.waiting();
    last.counters = batch.counters();
    last.pages = batch.pages();
    // Counting takes longer than the rest, so it is not done after each forward.
    constexpr double kCountedMs = 100.0;
    const double now = speculative::steady_now();
    if (now < counted_ms + kCountedMs && last.running > 0) return;
    counted_ms = now;
    last.kv_pages = batch.kv_pages();
    last.kv_pages_used = batch.kv_pages_used();
}

void EngineLoop::State::forget_ended() {
    for (const std::uint64_t ticket : ended) sinks.erase(ticket);
    ended.clear();
}

// Every sink that is left gets its end().
void EngineLoop::State::finish_all(const std::string& error) {
    forget_ended();  // of a step that failed
    std::vector<Order> late;
    {
        const std::scoped_lock lock(mutex);
        std::swap(late, inbox);
        arriving = 0;
        last.running = 0;
        last.waiting = 0;
    }
    speculative::GenerateResult nothing;
    nothing.finish = speculative::FinishReason::cancelled;
    const BatchEnd end{.result = nothing, .error = error};
    for (const auto& entry : sinks) entry.second->end(end);
    for (const std::vector<Order>* orders : {&taken, &late}) {
        for (const Order& order : *orders) {
            if (order.kind == Kind::add && order.sink != nullptr) order.sink->end(end);
        }
    }
    sinks.clear();
}

void EngineLoop::State::run() {
    std::string error;
    try {
        bool idle = true;
        while (wait_for_orders(idle)) {
            obey();
            idle = !batch.step();
            forget_ended();
            publish();
        }
        // What runs ends with what it has.
        for (const auto& entry : sinks) batch.cancel(Ticket{entry.first});
        batch.step();
        forget_ended();
        // Only what is on the disk outlasts the program.
        if (!engine.config().cache_folder.empty()) batch.store_pages();
    } catch (const std::exception& problem) {
        error = problem.what();
        const std::scoped_lock lock(mutex);
        broken = error;
    }
    finish_all(error);
}

EngineLoop::EngineLoop(const Engine& engine, const BatchOptions& options)
    : state_(std::make_unique<State>(engine, options)) {
    state_->thread = std::thread([state = state_.get()] { state->run(); });
}

EngineLoop::~EngineLoop() { stop(); }

Ticket EngineLoop::add(BatchRequest request, std::shared_ptr<Sink> sink) {
    State& s = *state_;
    check(sink != nullptr, "a request needs a sink");
    if (request.chain == nullptr) request.chain = s.engine.make_chain();
    s.batch.check_request(request);
    const std::scoped_lock lock(s.mutex);
    if (!s.broken.empty()) throw Error(s.broken);
    if (s.stopping) throw Error("the engine has been stopped");
    const Ticket ticket{++s.tickets};
    s.inbox.push_back({.kind = Kind::add, .ticket = ticket, .request = std::move(request), .sink = std::move(sink)});
    ++s.arriving;
    s.woken.notify_one();
    return ticket;
}

namespace {

template <class State>
void send(State& s, Kind kind, Ticket ticket) {
    const std::scoped_lock lock(s.mutex);
    s.inbox.push_back({.kind = kind, .ticket = ticket, .request = {}, .sink = {}});
    s.woken.notify_one();
}

}  // namespace

void EngineLoop::cancel(Ticket ticket) { send(*state_, Kind::cancel, ticket); }
void EngineLoop::pause(Ticket ticket) { send(*state_, Kind::pause, ticket); }
void EngineLoop::resume(Ticket ticket) { send(*state_, Kind::resume, ticket); }

void EngineLoop::stop() {
    State& s = *state_;
    const std::scoped_lock stop_lock(s.stop_mutex);
    {
        const std::scoped_lock lock(s.mutex);
        s.stopping = true;
    }
    s.woken.notify_one();
    if (s.thread.joinable()) s.thread.join();
}

LoopStatus EngineLoop::status() const {
    const std::scoped_lock lock(state_->mutex);
    LoopStatus status = state_->last;
    status.waiting += state_->arriving;
    return status;
}

}  // namespace foresay::engine
