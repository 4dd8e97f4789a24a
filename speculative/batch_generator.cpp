#include "speculative/batch_generator.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/text/tokenizer.h"
#include "samplers/chain.h"
#include "speculative/failures.h"
#include "speculative/sequence.h"

namespace foresay::speculative {

struct BatchGenerator::State {
    BatchParts parts;
    std::size_t most = 0;                              // sequences that run at once
    std::vector<std::unique_ptr<Sequence>> sequences;  // in the order of arrival; the admitted ones come first
    std::uint64_t tickets = 0;
    kernels::RowClass last = kernels::RowClass::decode;
    // Of the forward:
    std::vector<SequenceLoad> loads;
    Schedule schedule;
    std::vector<kernels::TokenRef> tokens;
    std::vector<std::int32_t> logit_rows;
    std::vector<core::Segment> segments;
    std::vector<Sequence*> chosen;  // of each segment

    explicit State(BatchParts given) : parts(std::move(given)) {}

    core::Context& target() const { return *parts.target; }
    std::size_t running() const {
        return static_cast<std::size_t>(std::ranges::count_if(
            sequences, [](const auto& sequence) { return sequence->admitted() && !sequence->ended(); }));
    }
    Sequence* find(Ticket ticket) {
        for (const auto& sequence : sequences) {
            if (sequence->ticket() == ticket && !sequence->ended()) return sequence.get();
        }
        return nullptr;
    }

    void end_cancelled();
    void admit();
    void remove_ended();
    void make_segments();
    void sample();
};

// Sinks may add sequences while these loops run, so they go by index.
void BatchGenerator::State::end_cancelled() {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
        if (sequences[i]->cancelled) sequences[i]->end(FinishReason::cancelled);
    }
    remove_ended();
}

void BatchGenerator::State::admit() {
    for (std::size_t i = 0; i < sequences.size(); ++i) {
        Sequence& sequence = *sequences[i];
        if (sequence.admitted() || sequence.ended()) continue;
        if (sequence.room() == 0) {  // the prompt fills the context
            sequence.end(FinishReason::length);
            continue;
        }
        if (running() == most) break;
        const core::SequenceId id = target().cache().create();
        check(id >= 0, "the cache has a place for every running sequence");
        sequence.admit(id);
    }
    remove_ended();
}

void BatchGenerator::State::remove_ended() {
    std::erase_if(sequences, [this](const std::unique_ptr<Sequence>& sequence) {
        if (!sequence->ended()) return false;
        if (sequence->admitted()) target().cache().drop(sequence->id());
        return true;
    });
}

void BatchGenerator::State::make_segments() {
    tokens.clear();
    logit_rows.clear();
    segments.clear();
    chosen.clear();
    for (const ScheduledRows& rows : schedule.rows) {
        Sequence& sequence = *sequences[rows.sequence];
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
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        chosen[i]->advance(static_cast<std::int32_t>(segments[i].tokens.size()));
        if (segments[i].logit_rows.empty()) continue;
        // The sink of another sequence may have cancelled it since.
        if (!chosen[i]->cancelled) chosen[i]->sample(target(), row);
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
    s.loads.reserve(s.most);
    s.schedule.rows.reserve(s.most);
    s.segments.reserve(s.most);
    s.chosen.reserve(s.most);
}

BatchGenerator::~BatchGenerator() = default;
BatchGenerator::BatchGenerator(BatchGenerator&&) noexcept = default;
BatchGenerator& BatchGenerator::operator=(BatchGenerator&&) noexcept = default;

Ticket BatchGenerator::add(BatchRequest request, Sink& sink) {
    State& s = *state_;
    check(request.chain != nullptr, "a sequence needs a chain");
    check_prompt(s.target(), 0, request.input);
    const Ticket ticket{++s.tickets};
    s.sequences.push_back(std::make_unique<Sequence>(ticket, std::move(request), sink, s.parts));
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
    for (const auto& sequence : s.sequences) {
        if (!sequence->admitted()) break;
        s.loads.push_back(sequence->load());
    }
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

std::size_t BatchGenerator::running() const { return state_->running(); }
std::size_t BatchGenerator::waiting() const { return state_->sequences.size() - state_->running(); }
core::Context& BatchGenerator::target() { return *state_->parts.target; }

}  // namespace foresay::speculative
