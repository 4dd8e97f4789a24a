#include "speculative/batch_generator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "core/text/tokenizer.h"
#include "samplers/chain.h"
#include "speculative/failures.h"
#include "speculative/sequence.h"

namespace foresay::speculative {

struct BatchGenerator::State {
    BatchParts parts;
    std::size_t most = 0;                            // sequences that run at once
    std::vector<std::unique_ptr<Sequence>> running;  // in the order of admission
    std::vector<std::unique_ptr<Sequence>> waiting;  // in the order of arrival
    std::uint64_t tickets = 0;
    std::map<std::string, std::uint64_t, std::less<>> served;  // rows, by queue; of queues with sequences
    kernels::RowClass last = kernels::RowClass::decode;
    BatchCounters counters;
    // Of the forward:
    std::vector<SequenceLoad> loads;
    Schedule schedule;
    std::vector<kernels::TokenRef> tokens;
    std::vector<std::int32_t> logit_rows;
    std::vector<core::Segment> segments;
    std::vector<Sequence*> chosen;  // of each segment
    std::vector<WaitingRequest> candidates;

    explicit State(BatchParts given) : parts(std::move(given)) {}

    core::Context& target() const { return *parts.target; }
    Sequence* find(Ticket ticket) {
        for (const auto* list : {&running, &waiting}) {
            for (const auto& sequence : *list) {
                if (sequence->ticket() == ticket && !sequence->ended()) return sequence.get();
            }
        }
        return nullptr;
    }

    void end_cancelled();
    void admit();
    std::size_t next();
    void remove_ended();
    void make_segments();
    void sample();
};

// Sinks may add sequences while these loops run, so they go by index.
void BatchGenerator::State::end_cancelled() {
    for (std::size_t i = 0; i < running.size(); ++i) {
        if (running[i]->cancelled) running[i]->end(FinishReason::cancelled);
    }
    for (std::size_t i = 0; i < waiting.size(); ++i) {
        if (waiting[i]->cancelled) {
            waiting[i]->end(FinishReason::cancelled);
        } else if (waiting[i]->room() == 0) {  // the prompt fills the context
            waiting[i]->end(FinishReason::length);
        }
    }
    remove_ended();
}

// The index of the waiting sequence that is admitted next.
std::size_t BatchGenerator::State::next() {
    candidates.clear();
    for (const auto& sequence : waiting) {
        candidates.push_back({.priority = sequence->priority(),
                              .passed_over = sequence->passed_over,
                              .served = served.find(sequence->queue())->second});
    }
    return next_admitted(candidates);
}

void BatchGenerator::State::admit() {
    while (!waiting.empty() && running.size() < most) {
        const core::SequenceId id = target().cache().create();
        check(id >= 0, "the cache has a place for every running sequence");
        const auto chosen_one = waiting.begin() + static_cast<std::ptrdiff_t>(next());
        running.push_back(std::move(*chosen_one));
        waiting.erase(chosen_one);
        running.back()->admit(id, 0);
        for (const auto& sequence : waiting) ++sequence->passed_over;
    }
}

void BatchGenerator::State::remove_ended() {
    bool removed = false;
    for (auto* list : {&running, &waiting}) {
        removed |= std::erase_if(*list, [this](const std::unique_ptr<Sequence>& sequence) {
                       if (!sequence->ended()) return false;
                       if (sequence->id() >= 0) target().cache().drop(sequence->id());
                       return true;
                   }) > 0;
    }
    if (!removed) return;
    std::erase_if(served, [this](const auto& entry) {
        const auto of_queue = [&](const auto& sequence) { return sequence->queue() == entry.first; };
        return std::ranges::none_of(running, of_queue) && std::ranges::none_of(waiting, of_queue);
    });
}

void BatchGenerator::State::make_segments() {
    tokens.clear();
    logit_rows.clear();
    segments.clear();
    chosen.clear();
    for (const ScheduledRows& rows : schedule.rows) {
        Sequence& sequence = *running[rows.sequence];
        const std::size_t begin = tokens.size();
        for (const std::int32_t token : sequence.next_tokens(rows.rows)) {
            tokens.push_back(kernels::TokenRef::id(token));
        }
        const std::size_t first = logit_rows.size();
        if (sequence.samples_after(rows.rows)) logit_rows.push_back(rows.rows - 1);
        segments.push_back({.sequence = sequence.id(),
                            .tokens = std::span(tokens).subspan(begin),
                            .logit_rows = std::span(logit_rows).subspan(first)});
        chosen.push_back(&sequence);
    }
}

void BatchGenerator::State::sample() {
    std::int32_t row = 0;
    ++counters.forwards;
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        Sequence& sequence = *chosen[i];
        const auto rows = static_cast<std::int32_t>(segments[i].tokens.size());
        (schedule.row_class == kernels::RowClass::prefill ? counters.prefill_rows : counters.decode_rows) += rows;
        served.find(sequence.queue())->second += static_cast<std::uint64_t>(rows);
        sequence.advance(schedule.row_class, rows);
        if (segments[i].logit_rows.empty()) continue;
        // The sink of another sequence may have cancelled it since.
        if (!sequence.cancelled) {
            const std::int32_t room = sequence.room();
            sequence.sample(target(), row);
            counters.tokens += room - sequence.room();
        }
        ++row;
    }
}

BatchGenerator::BatchGenerator(BatchParts parts) {
    check(parts.target != nullptr, "a batch needs a target");
    check(parts.target->options().branches == 0, "every sequence of a batch has pages for a whole context");
    if (parts.end_tokens.empty() && parts.tokenizer != nullptr) {
        const auto ends = parts.tokenizer->end_of_text_ids();
        parts.end_tokens.assign(ends.begin(), ends.end());
    }
    state_ = std::make_unique<State>(std::move(parts));
    State& s = *state_;
    s.parts.prefill_rows_beside = std::max(1, s.parts.prefill_rows_beside);
    const core::ContextOptions& options = s.target().options();
    s.most = static_cast<std::size_t>(std::min(options.sequences, options.decode_rows));
    s.target().cache().drop(0);  // sequences are made as they come
    const auto rows = static_cast<std::size_t>(s.target().max_rows());
    s.tokens.reserve(rows);
    s.logit_rows.reserve(s.most);
    s.running.reserve(s.most);
    s.loads.reserve(s.most);
    s.schedule.rows.reserve(s.most);
    s.segments.reserve(s.most);
    s.chosen.reserve(s.most);
}

BatchGenerator::~BatchGenerator() = default;
BatchGenerator::BatchGenerator(BatchGenerator&&) noexcept = default;
BatchGenerator& BatchGenerator::operator=(BatchGenerator&&) noexcept = default;

void BatchGenerator::check_request(const BatchRequest& request) const {
    const core::Context& target = *state_->parts.target;
    if (request.chain == nullptr) throw Error("a request needs a sampling chain");
    check_prompt(target, 0, request.input);
    const std::int32_t vocab = target.model().config().shape.vocab;
    for (const std::int32_t token : request.stop_tokens) {
        if (token < 0 || token >= vocab) {
            throw Error("the stop token " + std::to_string(token) + " is outside the model's vocabulary of " +
                        std::to_string(vocab));
        }
    }
    const core::StopStrings stops(request.stop);
}

Ticket BatchGenerator::add(BatchRequest request, Sink& sink) {
    State& s = *state_;
    check_request(request);
    const Ticket ticket{++s.tickets};
    // A new queue starts level with the one served least, so that it does not have the engine for itself at first.
    if (!s.served.contains(request.queue)) {
        std::uint64_t least = 0;
        if (!s.served.empty()) {
            least = std::ranges::min_element(s.served, {}, [](const auto& entry) { return entry.second; })->second;
        }
        s.served.emplace(request.queue, least);
    }
    s.waiting.push_back(std::make_unique<Sequence>(ticket, std::move(request), sink, s.parts));
    return ticket;
}

void BatchGenerator::cancel(Ticket ticket) {
    if (Sequence* sequence = state_->find(ticket)) sequence->cancelled = true;
}

void BatchGenerator::pause(Ticket ticket) {
    if (Sequence* sequence = state_->find(ticket)) sequence->paused = true;
}

void BatchGenerator::resume(Ticket ticket) {
    if (Sequence* sequence = state_->find(ticket)) sequence->paused = false;
}

bool BatchGenerator::step() {
    State& s = *state_;
    s.end_cancelled();
    s.admit();
    s.loads.clear();
    for (const auto& sequence : s.running) s.loads.push_back(sequence->load());
    const core::ContextOptions& options = s.target().options();
    schedule_forward(s.loads,
                     {.prefill_rows = options.prefill_rows,
                      .prefill_rows_beside = s.parts.prefill_rows_beside,
                      .decode_rows = options.decode_rows},
                     s.last, s.schedule);
    if (s.schedule.rows.empty()) return false;
    s.make_segments();
    check(s.target().evaluate(s.schedule.row_class, s.segments), "every admitted sequence has its pages");
    s.last = s.schedule.row_class;
    s.sample();
    s.remove_ended();
    return true;
}

std::size_t BatchGenerator::running() const { return state_->running.size(); }
std::size_t BatchGenerator::waiting() const { return state_->waiting.size(); }
const BatchCounters& BatchGenerator::counters() const { return state_->counters; }
core::Context& BatchGenerator::target() { return *state_->parts.target; }

}  // namespace foresay::speculative
