#include "speculative/batch_generator.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "core/text/tokenizer.h"
#include "samplers/chain.h"
#include "speculative/failures.h"
#include "speculative/prefix_cache.h"
#include "speculative/sequence.h"

namespace foresay::speculative {

namespace {

// Positions that a text is sure to get beyond its prompt when it is admitted.
constexpr std::int32_t kGrowth = kernels::kPagePositions;
// A prompt waits for another one that is evaluating at least so many more tokens of the same beginning.
constexpr std::int32_t kWorthWaiting = 32;

}  // namespace

struct BatchGenerator::State {
    BatchParts parts;
    std::size_t most = 0;                            // sequences that run at once
    std::vector<std::unique_ptr<Sequence>> running;  // in the order of admission
    std::vector<std::unique_ptr<Sequence>> waiting;  // in the order of arrival
    std::uint64_t tickets = 0;
    std::map<std::string, std::uint64_t, std::less<>> served;  // rows, by queue; of queues with sequences
    kernels::RowClass last = kernels::RowClass::decode;
    BatchCounters counters;
    PrefixCache kept;  // texts that have ended
    // Of the forward:
    std::vector<SequenceLoad> loads;
    Schedule schedule;
    std::vector<kernels::TokenRef> tokens;
    std::vector<std::int32_t> logit_rows;
    std::vector<core::Segment> segments;
    std::vector<Sequence*> chosen;  // of each segment
    std::vector<WaitingRequest> candidates;
    std::vector<std::size_t> places;  // of the candidates, in `waiting`

    explicit State(BatchParts given) : parts(std::move(given)), kept(parts.target->cache(), parts.classes_agree) {}

    core::Context& target() const { return *parts.target; }
    core::KvCache& cache() const { return parts.target->cache(); }
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
    bool waits_for_another(const Sequence& sequence) const;
    bool give_pages(Sequence& sequence);
    core::SequenceId open(const Sequence& sequence, std::int32_t& held);
    std::int32_t pages_to_grow(const Sequence& sequence) const;
    void plan();
    void preempt();
    void release(Sequence& sequence);
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

// Whether a sequence that runs is about to evaluate a beginning of this prompt.
bool BatchGenerator::State::waits_for_another(const Sequence& sequence) const {
    if (!parts.reuse_prefixes) return false;
    std::int32_t held = 0;  // of this prompt, by any of them
    std::int32_t promised = 0;
    for (const auto& other : running) {
        const std::int32_t common = common_prefix(other->key(), sequence.key(), parts.classes_agree);
        held = std::max(held, std::min(common, other->held()));
        if (!other->paused && !other->cancelled) promised = std::max(promised, common);
    }
    return promised >= held + kWorthWaiting;
}

// The index of the waiting sequence that is admitted next; waiting.size() when all wait for another.
std::size_t BatchGenerator::State::next() {
    candidates.clear();
    places.clear();
    for (std::size_t i = 0; i < waiting.size(); ++i) {
        const Sequence& sequence = *waiting[i];
        if (sequence.waits_for_another) continue;
        candidates.push_back({.priority = sequence.priority(),
                              .passed_over = sequence.passed_over,
                              .served = served.find(sequence.queue())->second});
        places.push_back(i);
    }
    return candidates.empty() ? waiting.size() : places[next_admitted(candidates)];
}

// A sequence of the cache for `sequence`, with as much of its text as is known; -1: there is none.
core::SequenceId BatchGenerator::State::open(const Sequence& sequence, std::int32_t& held) {
    held = 0;
    PrefixCache::Found found;
    if (parts.reuse_prefixes) {
        found = kept.find(sequence.key());
        for (const auto& other : running) {
            const std::int32_t common =
                std::min(common_prefix(other->key(), sequence.key(), parts.classes_agree), other->held());
            if (common > found.length) found = {other->id(), common};
        }
    }
    // The last token is evaluated in any case, for its logits.
    found.length = std::min(found.length, static_cast<std::int32_t>(sequence.tokens().size()) - 1);
    if (found.length <= 0) {
        if (cache().free_sequences() == 0) kept.evict_text();
        return cache().create();
    }
    core::SequenceId id = -1;
    if (cache().free_sequences() == 0 && kept.texts() == 1) id = kept.take(found.sequence);
    if (id < 0) {
        if (cache().free_sequences() == 0) kept.evict_text();  // not the one just found
        id = cache().fork(found.sequence);
    }
    if (id < 0) return -1;
    held = found.length;
    cache().truncate(id, held);
    cache().release_spare(id);
    return id;
}

// Pages that the sequence takes until it has grown by kGrowth tokens.
std::int32_t BatchGenerator::State::pages_to_grow(const Sequence& sequence) const {
    return cache().missing_pages(sequence.id(), sequence.missing() + std::min(sequence.room(), kGrowth));
}

// Admits the sequence if there are pages for its prompt and for the growth of all.
bool BatchGenerator::State::give_pages(Sequence& sequence) {
    std::int32_t held = 0;
    const core::SequenceId id = open(sequence, held);
    if (id < 0) return false;
    std::int32_t wanted = 0;
    for (const auto& other : running) wanted += pages_to_grow(*other);
    const auto rows = static_cast<std::int32_t>(sequence.tokens().size()) - held + std::min(sequence.room(), kGrowth);
    wanted += cache().missing_pages(id, rows);
    // A pool holds at least one whole text.
    if (!running.empty() && wanted > cache().free_pages() && wanted > cache().free_pages() + kept.evictable_pages()) {
        cache().drop(id);
        return false;
    }
    counters.cached_tokens += held;
    sequence.admit(id, held);
    return true;
}

void BatchGenerator::State::admit() {
    for (const auto& sequence : waiting) sequence->waits_for_another = false;
    while (running.size() < most) {
        const std::size_t place = next();
        if (place == waiting.size()) return;
        if (waits_for_another(*waiting[place])) {
            waiting[place]->waits_for_another = true;
            continue;
        }
        if (!give_pages(*waiting[place])) return;
        running.push_back(std::move(waiting[place]));
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(place));
        for (const auto& sequence : waiting) ++sequence->passed_over;
    }
}

// Keeps what the cache holds of a sequence for others.
void BatchGenerator::State::release(Sequence& sequence) {
    if (sequence.id() < 0) return;
    if (parts.reuse_prefixes && !sequence.broken) {
        kept.keep(sequence.id(), sequence.key());
    } else {
        cache().drop(sequence.id());
    }
    sequence.suspend();
}

// Takes the pages of one sequence, which waits from now on: a paused one, or the newest of the lowest priority.
void BatchGenerator::State::preempt() {
    const auto before = [](const auto& a, const auto& b) {
        if (a->paused != b->paused) return a->paused;
        if (a->priority() != b->priority()) return a->priority() < b->priority();
        return a->ticket() > b->ticket();
    };
    const auto victim = std::ranges::min_element(running, before);
    check(running.size() > 1 && victim != running.end(), "a pool holds at least one whole text");
    std::unique_ptr<Sequence> sequence = std::move(*victim);
    running.erase(victim);
    release(*sequence);
    ++counters.preemptions;
    const auto place =
        std::ranges::find_if(waiting, [&](const auto& other) { return other->ticket() > sequence->ticket(); });
    waiting.insert(place, std::move(sequence));
}

// Decides which rows the next forward has, and makes room for them.
void BatchGenerator::State::plan() {
    const core::ContextOptions& options = target().options();
    for (;;) {
        loads.clear();
        for (const auto& sequence : running) loads.push_back(sequence->load());
        schedule_forward(loads,
                         {.prefill_rows = options.prefill_rows,
                          .prefill_rows_beside = parts.prefill_rows_beside,
                          .decode_rows = options.decode_rows},
                         last, schedule);
        const auto wanted = [this] {
            std::int32_t pages = 0;
            for (const ScheduledRows& rows : schedule.rows) {
                pages += cache().missing_pages(running[rows.sequence]->id(), rows.rows);
            }
            return pages;
        };
        bool room = wanted() <= cache().free_pages();
        while (!room && kept.evict_page()) room = wanted() <= cache().free_pages();
        if (room) return;
        preempt();
    }
}

void BatchGenerator::State::remove_ended() {
    bool removed = false;
    for (auto* list : {&running, &waiting}) {
        removed |= std::erase_if(*list, [this](const std::unique_ptr<Sequence>& sequence) {
                       if (!sequence->ended()) return false;
                       release(*sequence);
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
        sequence.advance(rows);
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
    if (parts.end_tokens.empty() && parts.tokenizer != nullptr) {
        const auto ends = parts.tokenizer->end_of_text_ids();
        parts.end_tokens.assign(ends.begin(), ends.end());
    }
    state_ = std::make_unique<State>(std::move(parts));
    State& s = *state_;
    s.parts.prefill_rows_beside = std::max(1, s.parts.prefill_rows_beside);
    const core::ContextOptions& options = s.target().options();
    const std::int32_t ids = options.sequences + options.branches;
    const std::int32_t wanted = s.parts.most_sequences > 0 ? s.parts.most_sequences : ids;
    s.most = static_cast<std::size_t>(std::min({wanted, ids, options.decode_rows}));
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
    s.plan();
    if (s.schedule.rows.empty()) return false;
    s.make_segments();
    check(s.target().evaluate(s.schedule.row_class, s.segments), "every admitted sequence has its pages");
    s.last = s.schedule.row_class;
    s.sample();
    s.remove_ended();
    return true;
}

void BatchGenerator::forget() {
    while (state_->kept.evict_text()) {
    }
}

std::size_t BatchGenerator::running() const { return state_->running.size(); }
std::size_t BatchGenerator::waiting() const { return state_->waiting.size(); }
const BatchCounters& BatchGenerator::counters() const { return state_->counters; }
core::Context& BatchGenerator::target() { return *state_->parts.target; }

}  // namespace foresay::speculative
