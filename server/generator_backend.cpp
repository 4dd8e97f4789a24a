#include "server/generator_backend.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "base/signals.h"
#include "server/error.h"
#include "speculative/logprobs.h"

namespace foresay::server {

namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

}  // namespace

struct GeneratorBackend::State {
    struct Job {
        Ticket ticket = 0;
        BackendRequest request;
        std::shared_ptr<TokenSink> sink;
        std::atomic<bool> cancelled{false};
        Clock::time_point submitted = Clock::now();
        bool late() const { return request.deadline > 0.0 && request.deadline <= speculative::steady_now(); }
    };

    State(const engine::Engine& engine, std::size_t queue)
        : engine(engine), generator(engine.make_generator()), most_waiting(queue) {}

    const engine::Engine& engine;
    speculative::Generator generator;
    const std::size_t most_waiting;
    mutable std::mutex mutex;
    std::condition_variable wake;
    std::deque<std::shared_ptr<Job>> waiting, dropped;
    std::shared_ptr<Job> running;
    Ticket next = 1;
    bool stopping = false;
    std::thread thread;

    void work();
    void end_dropped(std::unique_lock<std::mutex>& lock);
    void answer(Job& job);
    void run(Job& job, BackendEnd& end);
};

// Ends those that wait no longer: who was cancelled, and whose deadline has come. The lock is open for their sinks.
void GeneratorBackend::State::end_dropped(std::unique_lock<std::mutex>& lock) {
    const auto late =
        std::stable_partition(waiting.begin(), waiting.end(), [](const auto& job) { return !job->late(); });
    dropped.insert(dropped.end(), late, waiting.end());
    waiting.erase(late, waiting.end());
    while (!dropped.empty()) {
        const std::shared_ptr<Job> job = dropped.front();
        dropped.pop_front();
        lock.unlock();
        BackendEnd end;
        end.queue_ms = ms_since(job->submitted);
        end.finish = job->late() ? BackendEnd::Finish::deadline : BackendEnd::Finish::cancelled;
        job->sink->end(end);
        lock.lock();
    }
}

void GeneratorBackend::State::work() {
    std::unique_lock lock(mutex);
    for (;;) {
        wake.wait(lock, [&] { return stopping || !waiting.empty() || !dropped.empty(); });
        end_dropped(lock);
        if (!waiting.empty()) {
            running = waiting.front();
            waiting.pop_front();
            const std::shared_ptr<Job> job = running;
            if (stopping) job->cancelled = true;
            lock.unlock();
            answer(*job);
            lock.lock();
            running.reset();
        } else if (stopping) {
            return;
        }
    }
}

void GeneratorBackend::State::answer(Job& job) {
    BackendEnd end;
    end.queue_ms = ms_since(job.submitted);
    try {
        run(job, end);
    } catch (const std::exception& problem) {
        end.finish = BackendEnd::Finish::failed;
        end.error = problem.what();
    }
    if (job.cancelled) end.finish = BackendEnd::Finish::cancelled;
    job.sink->end(end);
}

void GeneratorBackend::State::run(Job& job, BackendEnd& end) {
    BackendRequest& request = job.request;
    if (job.cancelled) return;
    if (job.late()) {
        end.finish = BackendEnd::Finish::deadline;
        return;
    }
    if (!request.reuse) generator.truncate(0);
    // What the cache holds of the prompt stays, for this text or a parked one.
    const std::vector<std::uint8_t> given(request.prompt.size(), 0);
    generator.switch_to(request.prompt, given);
    end.cached_tokens = std::min<std::int64_t>(generator.held(), static_cast<std::int64_t>(request.prompt.size()));
    generator.set_chain(std::move(request.chain));
    const speculative::SpeculationOptions& now = generator.speculation();
    const speculative::SpeculationOptions& wanted = request.speculation;
    if (now.mode != wanted.mode || now.max_draft != wanted.max_draft || now.draft_length != wanted.draft_length)
        generator.set_speculation(wanted);

    speculative::GenerateRequest text;
    text.max_tokens = request.max_tokens;
    text.seed = request.seed;
    text.branch = request.branch;
    text.ignore_eos = request.ignore_eos;
    text.prediction = request.prediction;
    text.cancel = &job.cancelled;
    bool go_on = true;
    text.stop_when = [&](const speculative::TokenEvent&) { return !go_on; };
    const Clock::time_point start = Clock::now();
    const speculative::GenerateResult result = generator.generate(text, [&](const speculative::TokenEvent& event) {
        if (event.token >= 0 && go_on) go_on = job.sink->token({event.token, event.drafted, event.source});
        std::unique_lock lock(mutex);
        end_dropped(lock);
    });
    end.first_token_ms = result.ttft_ms;
    end.prompt_ms = result.ttft_ms;
    end.generation_ms = ms_since(start) - result.ttft_ms;
    end.speculation = result.speculation;
    switch (result.finish) {
        case speculative::FinishReason::stop:
            end.finish = BackendEnd::Finish::stop;
            break;
        case speculative::FinishReason::length:
            end.finish = BackendEnd::Finish::length;
            break;
        case speculative::FinishReason::cancelled:
        case speculative::FinishReason::deadline:  // a generator knows none
            end.finish = BackendEnd::Finish::cancelled;
            break;
    }
    if (request.alternatives < 0 || job.cancelled) return;
    std::optional<speculative::Logprobs> logprobs;
    std::vector<TokenProbabilities> all;
    generator.visit_logits(
        static_cast<std::int32_t>(request.prompt.size()), [&](std::int32_t index, std::span<const float> logits) {
            const std::int32_t token = generator.tokens()[static_cast<std::size_t>(index)];
            if (!logprobs) {
                const auto rows = static_cast<std::int32_t>(logits.size());
                logprobs.emplace(std::min(rows, engine.tokenizer().vocab_size()), request.alternatives);
            }
            logprobs->read(logits);
            all.push_back(probabilities_of(logprobs->of(token)));
        });
    job.sink->probabilities(std::move(all));
}

GeneratorBackend::GeneratorBackend(const engine::Engine& engine, std::size_t queue)
    : state_(std::make_unique<State>(engine, queue)) {
    const SignalsBlocked blocked;
    state_->thread = std::thread([this] { state_->work(); });
}

GeneratorBackend::~GeneratorBackend() { stop(); }

void GeneratorBackend::stop() {
    {
        const std::lock_guard lock(state_->mutex);
        state_->stopping = true;
        if (state_->running) state_->running->cancelled = true;
    }
    state_->wake.notify_all();
    if (state_->thread.joinable()) state_->thread.join();
}

Ticket GeneratorBackend::submit(BackendRequest request, std::shared_ptr<TokenSink> sink) {
    const auto job = std::make_shared<State::Job>();
    job->request = std::move(request);
    job->sink = std::move(sink);
    {
        const std::lock_guard lock(state_->mutex);
        if (state_->stopping) throw stopping();
        if (state_->waiting.size() >= state_->most_waiting) {
            ApiError busy(Problem::busy, "too many requests wait already; come again", "queue_full");
            busy.retry_after = 1;
            throw busy;
        }
        job->ticket = state_->next++;
        // Before the first of lower priority.
        const auto place = std::find_if(state_->waiting.begin(), state_->waiting.end(), [&](const auto& other) {
            return other->request.priority < job->request.priority;
        });
        state_->waiting.insert(place, job);
    }
    state_->wake.notify_all();
    return job->ticket;
}

void GeneratorBackend::cancel(Ticket ticket) {
    {
        const std::lock_guard lock(state_->mutex);
        if (state_->running && state_->running->ticket == ticket) state_->running->cancelled = true;
        const auto job = std::find_if(state_->waiting.begin(), state_->waiting.end(),
                                      [&](const auto& j) { return j->ticket == ticket; });
        if (job == state_->waiting.end()) return;
        state_->dropped.push_back(*job);
        state_->waiting.erase(job);
    }
    state_->wake.notify_all();
}

// A text that pauses would stop all others, which wait for it.
void GeneratorBackend::pause(Ticket, bool) {}

std::size_t GeneratorBackend::running() const {
    const std::lock_guard lock(state_->mutex);
    return state_->running ? 1 : 0;
}
std::size_t GeneratorBackend::waiting() const {
    const std::lock_guard lock(state_->mutex);
    return state_->waiting.size();
}

}  // namespace foresay::server
