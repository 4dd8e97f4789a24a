#include "speculative/batch_generator.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/error.h"
#include "core/text/tokenizer.h"
#include "kernels/host_threads.h"
#include "samplers/chain.h"
#include "speculative/batch_state.h"
#include "speculative/failures.h"

namespace foresay::speculative {

namespace {

// A prompt waits for another one that is evaluating at least so many more tokens of the same beginning.
constexpr std::int32_t kWorthWaiting = 32;
// Under `automatic`, after so many rounds without a draft that paid, so many forwards run ahead before the next look.
constexpr std::int32_t kPlainRounds = 2;
constexpr std::int32_t kForwardsAhead = 8;

std::uint64_t ticket_number(const Sequence& sequence) { return static_cast<std::uint64_t>(sequence.ticket()); }

}  // namespace

double BatchGenerator::State::next_deadline() const {
    double first = std::numeric_limits<double>::infinity();
    for (const auto* list : {&running, &waiting}) {
        for (const auto& sequence : *list) {
            if (sequence->deadline() > 0.0) first = std::min(first, sequence->deadline());
        }
    }
    return first;
}

void BatchGenerator::State::end_before_forward(Sequence& sequence, FinishReason finish) {
    log.line("end", ticket_number(sequence), name(finish));
    sequence.end(finish);
}

// And those whose deadline has come. Sinks may add sequences while these loops run, so they go by index.
void BatchGenerator::State::end_cancelled() {
    // The clock is asked only where it matters.
    const double now = std::isfinite(next_deadline()) ? parts.now() : 0.0;
    log.line("step", now);
    const auto late = [now](const Sequence& sequence) {
        return sequence.deadline() > 0.0 && sequence.deadline() <= now;
    };
    for (std::size_t i = 0; i < running.size(); ++i) {
        if (running[i]->cancelled) {
            end_before_forward(*running[i], FinishReason::cancelled);
        } else if (late(*running[i])) {
            end_before_forward(*running[i], FinishReason::deadline);
        }
    }
    for (std::size_t i = 0; i < waiting.size(); ++i) {
        if (waiting[i]->cancelled) {
            end_before_forward(*waiting[i], FinishReason::cancelled);
        } else if (late(*waiting[i])) {
            end_before_forward(*waiting[i], FinishReason::deadline);
        } else if (waiting[i]->room() == 0) {  // the prompt fills the context
            end_before_forward(*waiting[i], FinishReason::length);
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

WaitingRequest BatchGenerator::State::waits(const Sequence& sequence) const {
    return {.priority = sequence.priority(),
            .passed_over = sequence.passed_over,
            .served = served.find(sequence.queue())->second};
}

// The index of the waiting sequence that is admitted next; waiting.size() when all wait for another or gave way.
std::size_t BatchGenerator::State::next() {
    candidates.clear();
    places.clear();
    for (std::size_t i = 0; i < waiting.size(); ++i) {
        const Sequence& sequence = *waiting[i];
        if (sequence.waits_for_another || sequence.gave_way) continue;
        candidates.push_back(waits(sequence));
        places.push_back(i);
    }
    return candidates.empty() ? waiting.size() : places[next_admitted(candidates)];
}

// A sequence of the cache for `sequence`, with as much of its text as texts here have; -1: there is none.
core::SequenceId BatchGenerator::State::open(const Sequence& sequence) {
    // The last token is evaluated in any case, for its logits.
    const std::int32_t most = parts.reuse_prefixes ? static_cast<std::int32_t>(sequence.tokens().size()) - 1 : 0;
    PrefixCache::Found known;
    for (const auto& other : running) {
        if (most == 0) break;
        const std::int32_t common =
            std::min({common_prefix(other->key(), sequence.key(), parts.classes_agree), other->held(), most});
        if (common > known.length && cache().continues_from(other->id(), common)) known = {other->id(), common};
    }
    return kept.open(sequence.key(), most, known);
}

// Pages that the sequence takes until it has grown by as much as it is sure to get.
std::int32_t BatchGenerator::State::pages_to_grow(const Sequence& sequence) const {
    return pages_to_grow(sequence.id(), sequence.missing() + std::min(sequence.room(), parts.sure_growth));
}

std::int32_t BatchGenerator::State::pages_to_grow(core::SequenceId id, std::int32_t rows) const {
    const std::int32_t missing = cache().missing_pages(id, rows);
    if (cache().window() == 0 || parts.shares_target) return missing;
    // As it grows, it gives back what all windows have left.
    const auto held = static_cast<std::int32_t>(cache().held_pages(id).size());
    return std::min(missing, std::max(1, cache().most_pages(target().max_rows()) - held));
}

// Texts give back the pages that all windows have left, to which no row will attend. A forward that runs ahead reads
// within its windows, and a later one that gets such a page writes to it after that.
void BatchGenerator::State::release_left() {
    static_assert(core::kMaxDraft + 2 < core::KvCache::kRewind, "a draft that is dropped reaches no page that is gone");
    for (const auto& sequence : running) {
        PrefixKey key = sequence->key();
        key.outlasts = key.outlasts && parts.reuse_prefixes && !sequence->broken;
        kept.release_left(sequence->id(), key);
        if (model && sequence->model_draft.id >= 0) kept.release_left(sequence->model_draft.id, key, PagesOf::draft);
    }
}

// Admits the sequence if there are pages for its prompt and for the growth of all.
bool BatchGenerator::State::give_pages(Sequence& sequence) {
    if (sequence.lent() >= 0) {  // and the pages for it are its owner's business
        sequence.admit(sequence.lent(), cache().length(sequence.lent()));
        return true;
    }
    const core::SequenceId id = open(sequence);
    if (id < 0) return false;
    std::int32_t wanted = 0;
    for (const auto& other : running) wanted += pages_to_grow(*other);
    const auto length = static_cast<std::int32_t>(sequence.tokens().size());
    const std::int32_t rows = length - cache().length(id) + std::min(sequence.room(), parts.sure_growth);
    wanted += pages_to_grow(id, rows);
    // A pool holds at least one whole text.
    if (!running.empty() && wanted > cache().free_pages() && wanted > cache().free_pages() + kept.evictable_pages()) {
        cache().drop(id);
        return false;
    }
    if (parts.reuse_prefixes) counters.restored_tokens += kept.restore(id, sequence.key(), length - 1);
    counters.cached_tokens += cache().length(id);
    if (alone && !sequence.drafts_alone()) begin_alone(sequence, id);
    sequence.admit(id, cache().length(id));
    sequence.learn_from(everyone);
    if (sequence.mode() != core::SpeculationMode::off) open_draft(sequence);
    return true;
}

void BatchGenerator::State::admit() {
    for (const auto& sequence : waiting) sequence->waits_for_another = false;
    while (running.size() < most) {
        const std::size_t place = next();
        if (place == waiting.size()) return;
        if (waits_for_another(*waiting[place])) {
            log.line("wait", ticket_number(*waiting[place]));
            waiting[place]->waits_for_another = true;
            continue;
        }
        if (!give_pages(*waiting[place])) {
            // Where all that run are paused, none would ever give pages back.
            const bool stuck = std::ranges::all_of(running, [](const auto& sequence) { return sequence->paused; });
            if (!running.empty() && stuck) {
                preempt("replace").gave_way = true;
                continue;
            }
            log.line("full", ticket_number(*waiting[place]));
            return;
        }
        log.line("admit", ticket_number(*waiting[place]), waiting[place]->held());
        running.push_back(std::move(waiting[place]));
        waiting.erase(waiting.begin() + static_cast<std::ptrdiff_t>(place));
        const std::int64_t reached = height(waits(*running.back()));
        for (const auto& sequence : waiting) {
            if (height(waits(*sequence)) < reached) ++sequence->passed_over;
        }
    }
}

// Keeps what the cache holds of a sequence for others.
void BatchGenerator::State::release(Sequence& sequence) {
    settle(sequence);
    const core::SequenceId drafted = model ? model->take(sequence.model_draft, sequence.tokens()) : -1;
    const bool keeps = parts.reuse_prefixes && !sequence.broken;
    if (drafted >= 0 && !keeps) model->cache().drop(drafted);
    if (sequence.id() < 0) return;
    // A forward that runs ahead may have a row of it.
    if (cache().length(sequence.id()) > sequence.held()) cache().truncate(sequence.id(), sequence.held());
    if (sequence.lent() < 0) {
        if (keeps) {
            kept.keep(sequence.id(), sequence.key(), drafted);
        } else {
            cache().drop(sequence.id());
        }
    }
    sequence.suspend();
}

// Takes the pages of one sequence, which waits from now on. `word`: the log's.
Sequence& BatchGenerator::State::preempt(const char* word) {
    holders.clear();
    for (const auto& sequence : running) {
        holders.push_back({sequence->paused, sequence->priority(), ticket_number(*sequence)});
    }
    const auto victim = running.begin() + static_cast<std::ptrdiff_t>(next_preempted(holders));
    std::unique_ptr<Sequence> sequence = std::move(*victim);
    running.erase(victim);
    log.line(word, ticket_number(*sequence));
    release(*sequence);
    ++counters.preemptions;
    const auto place =
        std::ranges::find_if(waiting, [&](const auto& other) { return other->ticket() > sequence->ticket(); });
    return **waiting.insert(place, std::move(sequence));
}

void BatchGenerator::State::log_plan() {
    if (!log.active()) return;
    log.begin("loads");
    for (const SequenceLoad& load : loads) log.pair(load.prefill_rows, ',', load.decode_rows);
    log.write();
    log.begin(schedule.mixed ? "rows mixed" : schedule.reads_prompts() ? "rows prefill" : "rows decode");
    for (const ScheduledRows& rows : schedule.rows) {
        log.pair(ticket_number(*running[rows.sequence]), ':', rows.rows);
    }
    log.write();
}

std::int32_t BatchGenerator::State::turn_of(std::span<const SequenceLoad> of) const {
    return decode_turn(of, turns.prefill_ms, turns.decode_ms, parts.classes_agree);
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
                          .decode_rows = target().max_rows(),
                          .decode_turn = turn_of(loads),
                          .mixes = parts.classes_agree},
                         turns.decoded, schedule);
        const auto wanted = [this] {
            std::int32_t pages = 0;
            for (const ScheduledRows& rows : schedule.rows) {
                pages += cache().missing_pages(running[rows.sequence]->id(), rows.rows);
            }
            return pages;
        };
        bool room = wanted() <= cache().free_pages();
        if (!room) {
            for (const auto& sequence : running) cache().release_spare(sequence->id());
            room = wanted() <= cache().free_pages();
        }
        while (!room && kept.evict_page()) room = wanted() <= cache().free_pages();
        if (room) break;
        check(running.size() > 1, "a pool holds at least one whole text");
        preempt("preempt");
    }
    log_plan();
}

void BatchGenerator::State::remove_ended() {
    bool removed = false;
    for (auto* list : {&running, &waiting}) {
        removed |= std::erase_if(*list, [this](const std::unique_ptr<Sequence>& sequence) {
                       if (!sequence->ended()) return false;
                       log.line("gone", ticket_number(*sequence));
                       std::ranges::replace(ahead.chosen, sequence.get(), nullptr);
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
    current.clear(schedule.row_class);
    for (const ScheduledRows& rows : schedule.rows) {
        Sequence& sequence = *running[rows.sequence];
        const std::size_t begin = current.tokens.size();
        for (const std::int32_t token : sequence.next_tokens(rows.rows)) {
            current.tokens.push_back(kernels::TokenRef::id(token));
        }
        const std::size_t first = current.logit_rows.size();
        if (sequence.samples_after(rows.rows)) current.logit_rows.push_back(rows.rows - 1);
        const auto add_drafted = [&](kernels::TokenRef token) {
            current.logit_rows.push_back(static_cast<std::int32_t>(current.tokens.size() - begin));
            current.tokens.push_back(token);
        };
        for (const std::int32_t token : sequence.draft_tokens()) add_drafted(kernels::TokenRef::id(token));
        if (sequence.open_slot() >= 0) add_drafted(kernels::TokenRef::slot(sequence.open_slot()));
        current.segments.push_back({.sequence = sequence.id(),
                                    .tokens = std::span(current.tokens).subspan(begin),
                                    .logit_rows = std::span(current.logit_rows).subspan(first)});
        current.base.push_back(rows.rows);
        current.chosen.push_back(&sequence);
        if (schedule.mixed && loads[rows.sequence].prefill_rows > 0) current.prompt_rows += rows.rows;
    }
}

// The forward that ran ahead becomes the present one, without those that take no rows any more. False: there was none,
// or no sequence is left in it.
bool BatchGenerator::State::take_ahead() {
    if (!runs_ahead) return false;
    runs_ahead = false;
    std::swap(current, ahead);
    bool any = false;
    for (Sequence*& sequence : current.chosen) {
        if (sequence == nullptr) continue;
        if (sequence->paused || sequence->wrong_guess) {
            cache().truncate(sequence->id(), sequence->held());
            sequence->wrong_guess = false;
            sequence = nullptr;
            continue;
        }
        sequence->begin_draft(0);
        any = true;
    }
    return any;
}

// The last row of a text that its owner has evaluated (BatchRequest::sequence) becomes the present forward. False:
// there is no such text.
bool BatchGenerator::State::take_evaluated() {
    if (running.size() != 1 || running.front()->missing() > 0) return false;
    Sequence* const sequence = running.front().get();
    sequence->begin_draft(0);
    current.clear(kernels::RowClass::decode);
    current.logit_rows.push_back(0);
    current.segments.push_back({.sequence = sequence->id(), .tokens = {}, .logit_rows = current.logit_rows});
    current.base.push_back(0);
    current.chosen.push_back(sequence);
    return true;
}

// Tokens of drafts that were still being sampled when the forward began. False: there were none.
bool BatchGenerator::State::close_drafts() {
    bool any = false;
    for (Sequence* sequence : current.chosen) any |= sequence->close_alone();
    return any;
}

// Where the device samples, all rows at once, before the host looks at any.
void BatchGenerator::State::start_sampling() {
    current.sources.assign(current.chosen.size(), RowSource::logits);
    sampling.begin();
    // A row whose sequence is gone is sampled like another one.
    const auto live =
        std::ranges::find_if(current.chosen, [](const Sequence* sequence) { return sequence != nullptr; });
    for (std::size_t i = 0; i < current.chosen.size(); ++i) {
        if (current.segments[i].logit_rows.empty()) continue;
        const bool gone = current.chosen[i] == nullptr;
        Sequence* const sequence = gone ? *live : current.chosen[i];
        if (sequence->samples_on_device()) {
            current.sources[i] = gone ? sequence->fill_row(sampling) : sequence->start_sampling(sampling);
        }
        if (current.sources[i] == RowSource::logits) break;  // the host's rows are the last
    }
    sampling.start(target());
}

// Whether the next forward can be known before the tokens of this one are: a row for each sequence, and no draft.
bool BatchGenerator::State::may_run_ahead() {
    if (current.row_class != kernels::RowClass::decode || current.prompt_rows > 0) return false;
    if (!target().ops().asynchronous()) return false;
    if (!waiting.empty() && running.size() < most) return false;
    // Where the next forward is full, or nearly, there is no draft to look for.
    const auto next_rows = static_cast<std::int32_t>(std::ranges::count_if(
        current.chosen, [](const Sequence* sequence) { return sequence != nullptr && sequence->room() > 1; }));
    const bool looks = leaves_room(next_rows, most_with_drafts(true), true) &&
                       (plain_rounds < kPlainRounds || forwards_ahead >= kForwardsAhead);
    std::int32_t pages = 0;
    std::size_t decoding = 0;
    for (std::size_t i = 0; i < current.chosen.size(); ++i) {
        const Sequence* const sequence = current.chosen[i];
        if (sequence == nullptr) continue;
        if (!sequence->drafts_alone()) {
            if (sequence->mode() == core::SpeculationMode::fixed) return false;
            if (sequence->mode() == core::SpeculationMode::automatic && looks) return false;
        }
        // The row of a guess is made again where it was wrong, and so must have been made here. What the host decides
        // is known in time, too.
        const bool known = !sequence->drafts_alone() || current.sources[i] == RowSource::tokens ||
                           (current.sources[i] == RowSource::guesses && current.base[i] > 0);
        if (sequence->cancelled || !known || sequence->lost || current.segments[i].logit_rows.size() != 1) {
            return false;
        }
        ++decoding;
        if (sequence->room() > 1) pages += cache().missing_pages(sequence->id(), 1);
    }
    // Prompts wait while the turn of those that decode goes on. The present forward is part of it.
    next_loads.clear();
    for (const auto& sequence : running) next_loads.push_back(sequence->load());
    const bool prompts_wait = turns.decoded + 1 < turn_of(next_loads);
    std::ptrdiff_t due = 0;
    for (std::size_t i = 0; i < running.size(); ++i) {
        if (!running[i]->paused && !(prompts_wait && next_loads[i].prefill_rows > 0)) ++due;
    }
    if (decoding != static_cast<std::size_t>(due)) return false;
    if (parts.shares_target) kept.free_pages(pages);
    if (pages > cache().free_pages()) return false;
    // Asked last, for a round begins with it.
    return std::ranges::all_of(current.chosen, [](Sequence* sequence) {
        return sequence == nullptr || !sequence->drafts_alone() || (sequence->room() > 1 && sequence->rests_alone());
    });
}

// Rows whose tokens the device does not know: those of log-probabilities, of stages of the host, and beyond the slots.
// The host decides them before the next forward overwrites them. All that follows from a token waits until it runs.
void BatchGenerator::State::decide_for_device() {
    firsts.clear();
    for (std::size_t i = 0; i < current.chosen.size(); ++i) {
        Sequence* const sequence = current.chosen[i];
        if (sequence == nullptr) continue;
        const auto row = static_cast<std::int32_t>(i);
        if (current.sources[i] == RowSource::candidates) sequence->decide_first(target(), row);
        if (current.sources[i] == RowSource::logits) firsts.emplace_back(sequence, target().logits(row));
    }
    for (const auto& [sequence, logits] : firsts) sequence->decide_first(logits);
}

// Starts the next forward, whose tokens the device has just begun to sample: while it runs, the host reads them.
void BatchGenerator::State::run_ahead() {
    if (!may_run_ahead()) return;
    decide_for_device();
    ahead.clear(kernels::RowClass::decode);
    for (std::size_t i = 0; i < current.chosen.size(); ++i) {
        Sequence* const sequence = current.chosen[i];
        if (sequence == nullptr || sequence->room() <= 1 || !sequence->goes_on()) continue;
        const std::size_t begin = ahead.tokens.size();
        const DecidedRow* const decided = sequence->decided();
        ahead.tokens.push_back(decided != nullptr ? kernels::TokenRef::id(decided->decision.token)
                                                  : kernels::TokenRef::slot(static_cast<std::int32_t>(i)));
        ahead.logit_rows.push_back(0);
        ahead.segments.push_back({.sequence = sequence->id(),
                                  .tokens = std::span(ahead.tokens).subspan(begin),
                                  .logit_rows = std::span(ahead.logit_rows).subspan(begin)});
        ahead.base.push_back(1);
        ahead.chosen.push_back(sequence);
    }
    if (ahead.chosen.empty()) return;
    check(target().evaluate(kernels::RowClass::decode, ahead.segments), "rows that run ahead have their pages");
    runs_ahead = true;
    ++forwards_ahead;
}

void BatchGenerator::State::wait_for_rows() {
    if (sampling.empty()) {
        if (!runs_ahead) target().wait();  // else the host has decided all rows
    } else {
        target().ops().sampled(target().workspace(), 0);
    }
}

// Where the host samples, the first row of each sequence at once, on the backend's threads: a chain reads nothing of
// another one. What becomes text is then said in order, and further rows of a draft wait for that.
void BatchGenerator::State::decide_first_rows() {
    firsts.clear();
    if (target().ops().asynchronous()) return;
    std::int32_t row = 0;
    for (std::size_t i = 0; i < current.chosen.size(); ++i) {
        Sequence* const sequence = current.chosen[i];
        if (current.segments[i].logit_rows.empty()) continue;
        if (!sequence->cancelled) firsts.emplace_back(sequence, target().logits(row));
        row += sequence->drafted() + 1;
    }
    if (firsts.size() < 2) return;
    kernels::for_each_on_host(target().ops(), static_cast<std::int32_t>(firsts.size()), [this](std::int32_t i) {
        const auto& [sequence, logits] = firsts[static_cast<std::size_t>(i)];
        sequence->decide_first(logits);
    });
}

void BatchGenerator::State::sample(double verify_ms) {
    decide_first_rows();
    std::int32_t row = 0;
    ++counters.forwards;
    counters.mixed_forwards += current.prompt_rows > 0 ? 1 : 0;
    counters.prefill_rows += current.prompt_rows;
    counters.decode_rows -= current.prompt_rows;
    for (std::size_t i = 0; i < current.chosen.size(); ++i) {
        const auto rows = static_cast<std::int32_t>(current.segments[i].tokens.size());
        (current.row_class == kernels::RowClass::prefill ? counters.prefill_rows : counters.decode_rows) += rows;
        const std::int32_t first = row;
        row += static_cast<std::int32_t>(current.segments[i].logit_rows.size());
        if (current.chosen[i] == nullptr) continue;
        Sequence& sequence = *current.chosen[i];
        served.find(sequence.queue())->second += static_cast<std::uint64_t>(rows);
        log.line("ran", ticket_number(sequence), rows);
        sequence.advance(current.base[i]);
        if (current.segments[i].logit_rows.empty()) continue;
        sequence.round.first = !sequence.has_tokens();
        if (sequence.drafts_alone() && !sequence.round.first) sequence.count_alone(verify_ms);
        const std::int32_t own = sequence.drafted();
        // The sink of another sequence may have cancelled it since.
        if (sequence.cancelled) {
            sequence.drop_draft(target());
        } else {
            const std::int32_t room = sequence.room();
            const std::int64_t accepted = sequence.accepted();
            const bool guessed = current.sources[i] == RowSource::guesses;
            const RowSource source = guessed && !runs_ahead ? RowSource::candidates : current.sources[i];
            sequence.sample(target(), first, source, everyone);
            counters.tokens += room - sequence.room();
            sequence.round.rows = own;
            sequence.round.emitted = room - sequence.room();
            sequence.round.accepted = static_cast<std::int32_t>(sequence.accepted() - accepted);
            counters.drafted += own;
            counters.accepted += sequence.round.accepted;
        }
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
    const std::int32_t wanted = s.parts.one_text ? 1 : s.parts.most_sequences > 0 ? s.parts.most_sequences : ids;
    s.most = static_cast<std::size_t>(std::min({wanted, ids, options.decode_rows}));
    if (!s.parts.shares_target) s.target().cache().drop(0);  // sequences are made as they come
    if (s.parts.one_text) {
        s.parts.make_drafter = {};
        s.warm_up_alone();
    } else if (s.parts.draft) {
        add_draft(std::move(s.parts.draft), std::move(s.parts.never_proposed));
    }
    if (s.drafts() && s.parts.speculation.mode == core::SpeculationMode::automatic) s.warm_up();
    const auto rows = static_cast<std::size_t>(s.target().max_rows());
    s.current.reserve(rows, s.most);
    s.ahead.reserve(rows, s.most);
    s.running.reserve(s.most);
    s.holders.reserve(s.most);
    const std::int32_t rows_of_one = s.target().max_rows();
    if (s.parts.classes_agree) {
        s.log.line("batch", options.prefill_rows, s.parts.prefill_rows_beside, rows_of_one, s.most, "mixes");
    } else {
        s.log.line("batch", options.prefill_rows, s.parts.prefill_rows_beside, rows_of_one, s.most);
    }
    s.firsts.reserve(s.most);
    s.loads.reserve(s.most);
    s.next_loads.reserve(s.most);
    s.schedule.rows.reserve(s.most);
    s.drafting_texts.reserve(s.most);
    s.fixed_texts.reserve(s.most);
    s.steps.reserve(s.most);
    s.gains.reserve(s.most);
    s.widths.reserve(s.most);
    s.drafted.reserve(s.most * static_cast<std::size_t>(core::kMaxDraft));
}

BatchGenerator::~BatchGenerator() = default;
BatchGenerator::BatchGenerator(BatchGenerator&&) noexcept = default;
BatchGenerator& BatchGenerator::operator=(BatchGenerator&&) noexcept = default;

void BatchGenerator::check_request(const BatchRequest& request) const {
    const core::Context& target = *state_->parts.target;
    if (request.chain == nullptr) throw Error("a request needs a sampling chain");
    check_prompt(target, 0, request.input);
    const std::int32_t vocab = target.model().config().shape.vocab;
    const auto check_ids = [vocab](const std::vector<std::int32_t>& ids, const char* what) {
        for (const std::int32_t token : ids) {
            if (token >= 0 && token < vocab) continue;
            throw Error(std::string(what) + " " + std::to_string(token) + " is outside the model's vocabulary of " +
                        std::to_string(vocab));
        }
    };
    check_ids(request.stop_tokens, "the stop token");
    check_ids(request.prediction, "the prediction's token");
    if (!request.generated.empty()) check(request.generated.size() == request.input.size(), "a kind for each token");
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
    if (s.log.active()) {
        s.log.line("add", s.tickets, request.priority, s.log.queue(request.queue), request.deadline,
                   request.input.size());
    }
    s.waiting.push_back(std::make_unique<Sequence>(ticket, std::move(request), sink, s.parts, s.model.has_value()));
    // Measured before the texts take all places, if no forward is under way.
    const Sequence& sequence = *s.waiting.back();
    const bool pays = sequence.mode() == core::SpeculationMode::automatic && !sequence.drafts_alone() && !s.alone;
    if (pays && !s.stepping && !s.runs_ahead) s.warm_up();
    return ticket;
}

void BatchGenerator::cancel(Ticket ticket) {
    Sequence* const sequence = state_->find(ticket);
    if (sequence == nullptr) return;
    sequence->cancelled = true;
    state_->log.line("cancel", ticket_number(*sequence));
}

void BatchGenerator::pause(Ticket ticket) {
    Sequence* const sequence = state_->find(ticket);
    if (sequence == nullptr || sequence->paused) return;
    sequence->paused = true;
    state_->log.line("pause", ticket_number(*sequence));
}

void BatchGenerator::resume(Ticket ticket) {
    Sequence* const sequence = state_->find(ticket);
    if (sequence == nullptr || !sequence->paused) return;
    sequence->paused = sequence->gave_way = false;
    state_->log.line("resume", ticket_number(*sequence));
}

// What a round took, for texts that have drafts of their own. Rounds of a prompt say nothing.
void BatchGenerator::State::observe_alone(double verify_ms, double round_ms, double emit_ms) {
    for (Sequence* const sequence : current.chosen) {
        if (sequence == nullptr || !sequence->drafts_alone() || sequence->round.first) continue;
        sequence->observe_alone(verify_ms, round_ms, emit_ms);
    }
}

bool BatchGenerator::step() {
    State& s = *state_;
    const double begin = s.parts.now();
    s.stepping = true;
    s.end_cancelled();
    bool ran = s.take_ahead();
    if (!ran) {
        // After texts that begin like one that runs were admitted: they take its pages over.
        s.admit();
        ran = s.take_evaluated();
    }
    s.release_left();
    if (ran) {
        s.log.line("ahead");
    } else {
        s.plan();
        if (s.schedule.rows.empty()) {
            s.stepping = false;
            return false;
        }
        // Rows that the device samples come first.
        std::ranges::sort(s.schedule.rows, {}, [&s](const ScheduledRows& rows) {
            return std::pair(!s.running[rows.sequence]->samples_on_device(), rows.sequence);
        });
        s.draft();
        s.make_segments();
    }
    double start = s.parts.now();
    if (!ran) {
        check(s.target().evaluate(s.current.row_class, s.current.segments), "every admitted sequence has its pages");
        if (s.close_drafts()) start = s.parts.now();
    }
    s.start_sampling();
    s.run_ahead();
    s.wait_for_rows();
    const double forward_end = s.parts.now();
    const double verify_ms = forward_end - start;
    // For a forward that ran ahead: from row to row, for what the host does meanwhile takes no time of its own.
    const double row_ms = ran ? forward_end - s.ready : verify_ms;
    s.ready = forward_end;
    s.sample(row_ms);
    s.counters.target_ms += verify_ms;
    const double end = s.parts.now();
    s.counters.sample_ms += end - forward_end;
    // Only a part of the time of a forward that ran ahead was waited for.
    const auto kind = s.schedule.reads_prompts() ? kernels::RowClass::prefill : kernels::RowClass::decode;
    if (ran) {
        s.turns.note_ahead();
    } else {
        s.turns.note(kind, s.loads, verify_ms);
    }
    s.log.line("took", verify_ms);
    if (kind == kernels::RowClass::decode && !ran) s.learn(verify_ms);
    s.observe_alone(row_ms, ran ? row_ms : end - begin, ran ? 0.0 : end - forward_end);
    s.remove_ended();
    s.counters.step_ms += s.parts.now() - begin;
    s.stepping = false;
    return true;
}

double BatchGenerator::next_deadline() const { return state_->next_deadline(); }

PrefixCache& BatchGenerator::kept() { return state_->kept; }

void BatchGenerator::forget() { state_->kept.forget(); }

void BatchGenerator::store_pages() {
    state_->kept.store_all();
    for (core::PageStore* store : {state_->parts.pages.get(), state_->parts.draft_pages.get()}) {
        if (store != nullptr) store->flush();
    }
}

core::PageCounters BatchGenerator::pages() const {
    core::PageCounters all;
    for (const core::PageStore* store : {state_->parts.pages.get(), state_->parts.draft_pages.get()}) {
        if (store != nullptr) all += store->counters();
    }
    return all;
}

std::int32_t BatchGenerator::kv_pages() const { return state_->cache().all_pages(); }

std::int32_t BatchGenerator::kv_pages_used() const {
    return kv_pages() - state_->cache().free_pages() - state_->kept.evictable_pages();
}

void BatchGenerator::add_draft(std::unique_ptr<core::Context> draft, std::vector<std::int32_t> never_proposed) {
    State& s = *state_;
    check(!s.model, "a batch has one draft model");
    s.model.emplace(std::move(draft), std::move(never_proposed), s.parts.now, s.kept);
    s.kept.add_draft({.cache = &s.model->cache(),
                      .classes_agree = true,
                      .ops = &s.model->ops(),
                      .store = s.parts.draft_pages.get()});
}

std::size_t BatchGenerator::running() const { return state_->running.size(); }
std::size_t BatchGenerator::waiting() const { return state_->waiting.size(); }
const BatchCounters& BatchGenerator::counters() const { return state_->counters; }
core::Context& BatchGenerator::target() { return *state_->parts.target; }

}  // namespace foresay::speculative
