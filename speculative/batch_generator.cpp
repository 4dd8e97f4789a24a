#include "speculative/batch_generator.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "core/text/tokenizer.h"
#include "samplers/chain.h"
#include "speculative/draft_gain.h"
#include "speculative/failures.h"
#include "speculative/prefix_cache.h"
#include "speculative/row_budget.h"
#include "speculative/sequence.h"

namespace foresay::speculative {

namespace {

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
    std::vector<Sequence*> chosen;   // of each segment
    std::vector<std::int32_t> base;  // rows of each segment without its draft
    std::vector<RowSource> sources;  // of each segment with logit rows
    BatchSampling sampling;
    std::vector<WaitingRequest> candidates;
    std::vector<std::size_t> places;  // of the candidates, in `waiting`
    // Of drafts:
    CostModel costs;
    RowLedger ledger;
    std::optional<ModelDrafts> model;
    Acceptance everyone;                    // how often the draft model is right, in all texts
    std::vector<Sequence*> drafting_texts;  // texts of the round that may draft
    std::vector<DraftStep> steps;
    std::vector<std::pair<double, Sequence*>> gains;
    double speedup = 1.0;  // tokens per millisecond with drafts, in those without, over the last rounds
    std::vector<DraftedRow> drafted;
    std::vector<std::int32_t> widths;  // of the drafts, by segment
    bool drafting = false;             // this round was allowed to draft
    double draft_ms = 0.0;

    explicit State(BatchParts given)
        : parts(std::move(given)),
          kept(parts.target->cache(), parts.classes_agree),
          costs(parts.target->options().decode_rows) {}

    core::Context& target() const { return *parts.target; }
    core::KvCache& cache() const { return parts.target->cache(); }
    bool drafts() const { return parts.make_drafter || model; }
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
    void warm_up();
    void draft();
    void draft_fixed();
    void draft_what_pays(std::int32_t used, double value);
    void take_proposals(Sequence& sequence, double value, bool prefer_model);
    double gain_of_model(const Sequence& sequence, double value, std::int32_t rows) const;
    void step_model(std::span<const std::pair<double, Sequence*>> texts);
    void start_sampling();
    void learn(double verify_ms, std::int32_t emitted);
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

// Pages that the sequence takes until it has grown by as much as it is sure to get.
std::int32_t BatchGenerator::State::pages_to_grow(const Sequence& sequence) const {
    return cache().missing_pages(sequence.id(), sequence.missing() + std::min(sequence.room(), parts.sure_growth));
}

// Admits the sequence if there are pages for its prompt and for the growth of all.
bool BatchGenerator::State::give_pages(Sequence& sequence) {
    std::int32_t held = 0;
    const core::SequenceId id = open(sequence, held);
    if (id < 0) return false;
    std::int32_t wanted = 0;
    for (const auto& other : running) wanted += pages_to_grow(*other);
    const auto rows =
        static_cast<std::int32_t>(sequence.tokens().size()) - held + std::min(sequence.room(), parts.sure_growth);
    wanted += cache().missing_pages(id, rows);
    // A pool holds at least one whole text.
    if (!running.empty() && wanted > cache().free_pages() && wanted > cache().free_pages() + kept.evictable_pages()) {
        cache().drop(id);
        return false;
    }
    counters.cached_tokens += held;
    sequence.admit(id, held);
    sequence.learn_from(everyone);
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
    if (model) model->forget(sequence.model_draft);
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
                          .decode_rows = target().max_rows()},
                         last, schedule);
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
    base.clear();
    for (const ScheduledRows& rows : schedule.rows) {
        Sequence& sequence = *running[rows.sequence];
        const std::size_t begin = tokens.size();
        for (const std::int32_t token : sequence.next_tokens(rows.rows)) {
            tokens.push_back(kernels::TokenRef::id(token));
        }
        for (const std::int32_t token : sequence.draft_tokens()) tokens.push_back(kernels::TokenRef::id(token));
        const std::size_t first = logit_rows.size();
        if (sequence.samples_after(rows.rows)) {
            for (std::int32_t i = 0; i <= sequence.drafted(); ++i) logit_rows.push_back(rows.rows - 1 + i);
        }
        segments.push_back({.sequence = sequence.id(),
                            .tokens = std::span(tokens).subspan(begin),
                            .logit_rows = std::span(logit_rows).subspan(first)});
        base.push_back(rows.rows);
        chosen.push_back(&sequence);
    }
}

// Where the device samples, all rows at once, before the host looks at any.
void BatchGenerator::State::start_sampling() {
    sources.assign(chosen.size(), RowSource::logits);
    sampling.begin();
    for (std::size_t i = 0; i < chosen.size(); ++i) {
        if (segments[i].logit_rows.empty()) continue;
        if (chosen[i]->samples_on_device()) sources[i] = chosen[i]->start_sampling(sampling);
        if (sources[i] == RowSource::logits) break;  // the host's rows are the last
    }
    sampling.start(target());
    if (sampling.empty()) {
        target().wait();
    } else {
        target().ops().sampled(target().workspace(), 0);
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
        sequence.advance(base[i]);
        if (segments[i].logit_rows.empty()) continue;
        const std::int32_t own = sequence.drafted();
        // The sink of another sequence may have cancelled it since.
        if (sequence.cancelled) {
            sequence.drop_draft(target());
        } else {
            const std::int32_t room = sequence.room();
            const std::int64_t accepted = sequence.accepted();
            sequence.sample(target(), row, sources[i], everyone);
            counters.tokens += room - sequence.room();
            counters.drafted += own;
            counters.accepted += sequence.accepted() - accepted;
        }
        row += own + 1;
    }
}

// Times forwards of several widths, within a time budget.
void BatchGenerator::State::warm_up() {
    if (!drafts() || parts.speculation.mode != core::SpeculationMode::automatic) return;
    if (model) model->warm_up();
    constexpr double kBudgetMs = 150.0;
    const core::SequenceId id = cache().create();
    std::vector<std::int32_t> ids(static_cast<std::size_t>(costs.widest()));
    for (std::size_t i = 0; i < ids.size(); ++i) {
        ids[i] = static_cast<std::int32_t>(i * 7919 % static_cast<std::size_t>(target().model().config().shape.vocab));
    }
    const double start = parts.now();
    for (std::int32_t width = 1; width <= std::min(costs.widest(), target().capacity()); width *= 2) {
        double best = 0.0;
        for (int repeat = -1; repeat < 2; ++repeat) {
            const double begin = parts.now();
            target().decode(std::span(ids).first(static_cast<std::size_t>(width)), 1, id);
            target().wait();
            const double ms = parts.now() - begin;
            target().truncate(0, id);
            if (repeat >= 0) best = repeat == 0 ? ms : std::min(best, ms);
        }
        costs.calibrate(width, best);
        if (parts.now() - start > kBudgetMs) break;
    }
    cache().drop(id);
}

void BatchGenerator::State::step_model(std::span<const std::pair<double, Sequence*>> texts) {
    steps.clear();
    for (const auto& [gain, sequence] : texts) {
        steps.push_back({.text = &sequence->model_draft,
                         .tokens = sequence->tokens(),
                         .draft = sequence->draft_tokens(),
                         .live = &sequence->chain(),
                         .sampled = {}});
    }
    const double start = parts.now();
    model->step(steps);
    counters.draft_ms += parts.now() - start;
    for (std::size_t i = 0; i < texts.size(); ++i) texts[i].second->take_sampled(steps[i].sampled);
}

// Every text gets what the draft model drafts, or else what its lookup has.
void BatchGenerator::State::draft_fixed() {
    while (model) {
        gains.clear();
        for (Sequence* sequence : drafting_texts) {
            if (sequence->draft_is_open()) gains.emplace_back(0.0, sequence);
        }
        if (gains.empty()) break;
        step_model(gains);
    }
    for (Sequence* sequence : drafting_texts) {
        while (sequence->draft_is_open() && sequence->proposal().token >= 0) sequence->take_proposal();
    }
}

// In tokens: what the draft model's next token for this text promises, without the time of the step.
double BatchGenerator::State::gain_of_model(const Sequence& sequence, double value, std::int32_t rows) const {
    const auto texts = static_cast<std::int32_t>(drafting_texts.size());
    // What the draft model has missed of the text is made up for once, in the hope of many drafts.
    const double late_ms = model->catch_up_ms(sequence.model_draft, sequence.tokens().size());
    const double rounds = std::max(8.0, 0.5 * sequence.room());
    return draft_gain(sequence.acceptance(), costs,
                      {.rows = rows,
                       .texts = texts,
                       .further = sequence.draft_room(),
                       .survival = sequence.survival(),
                       .match = match_class(sequence.proposal().length),
                       .step_ms = model->step_ms(texts) / texts,
                       .value = value}) -
           value * late_ms / rounds;
}

// Takes what the lookup has while that is likely. `prefer_model`: only where the draft model would not do better.
void BatchGenerator::State::take_proposals(Sequence& sequence, double value, bool prefer_model) {
    // A draft ends where it survives with less than this chance: no row is that cheap.
    constexpr double kLeastSurvival = 0.05;
    // What a right token is worth, in tokens: those after it can be accepted only if it is.
    constexpr double kFollowers = 2.0;
    while (sequence.draft_is_open() && sequence.proposal().token >= 0) {
        const double chance = sequence.proposal().chance;
        if (sequence.survival() * chance < kLeastSurvival) return;
        if (prefer_model) {
            const auto texts = static_cast<std::int32_t>(drafting_texts.size());
            const double better = sequence.survival() * (sequence.model_chance() - chance) * kFollowers;
            if (better > value * model->step_ms(texts) / texts) return;
        }
        sequence.take_proposal();
    }
}

// Each step of the draft model serves the texts that gain most by it, as many as pay for it.
void BatchGenerator::State::draft_what_pays(std::int32_t used, double value) {
    for (;;) {
        std::int32_t rows = used;
        for (Sequence* sequence : drafting_texts) {
            take_proposals(*sequence, value, model.has_value());
            rows += sequence->drafted();
        }
        if (!model) return;
        gains.clear();
        for (Sequence* sequence : drafting_texts) {
            if (sequence->draft_is_open()) gains.emplace_back(gain_of_model(*sequence, value, rows), sequence);
        }
        std::ranges::sort(gains, [](const auto& a, const auto& b) {
            return a.first != b.first ? a.first > b.first : a.second->ticket() < b.second->ticket();
        });
        double sum = 0.0;
        double best = 0.0;
        std::size_t count = 0;
        for (std::size_t i = 0; i < gains.size() && gains[i].first > 0.0; ++i) {
            sum += gains[i].first;
            const double net = sum - value * model->step_ms(static_cast<std::int32_t>(i) + 1);
            if (net <= best) continue;
            best = net;
            count = i + 1;
        }
        if (count == 0) break;
        step_model(std::span(gains).first(count));
    }
    for (Sequence* sequence : drafting_texts) take_proposals(*sequence, value, false);
}

// Drafts for the sequences of a decode forward, as far as there are rows and pages for them.
void BatchGenerator::State::draft() {
    drafting = false;
    draft_ms = 0.0;
    for (const ScheduledRows& rows : schedule.rows) running[rows.sequence]->begin_draft(0);
    const SpeculationOptions& options = parts.speculation;
    if (!drafts() || options.mode == core::SpeculationMode::off) return;
    if (schedule.row_class != kernels::RowClass::decode) return;
    const bool fixed = options.mode == core::SpeculationMode::fixed;
    std::int32_t used = 0;
    for (const ScheduledRows& rows : schedule.rows) used += rows.rows;
    if (used >= costs.widest() || (!fixed && !ledger.allows())) return;
    drafting = true;
    const double start = parts.now();
    std::int32_t pages = 0;
    drafting_texts.clear();
    for (const ScheduledRows& rows : schedule.rows) {
        Sequence& sequence = *running[rows.sequence];
        pages += cache().missing_pages(sequence.id(), rows.rows);
        if (!sequence.samples_after(rows.rows)) continue;
        sequence.begin_draft(fixed ? options.draft_length : options.max_draft);
        drafting_texts.push_back(&sequence);
    }
    const double value = fixed ? 0.0 : speedup * static_cast<double>(schedule.rows.size()) / costs.verify_ms(used);
    fixed ? draft_fixed() : draft_what_pays(used, value);
    drafted.clear();
    for (std::size_t i = 0; i < schedule.rows.size(); ++i) {
        const Sequence& sequence = *running[schedule.rows[i].sequence];
        for (std::int32_t depth = 0; depth < sequence.drafted(); ++depth) {
            drafted.push_back({static_cast<std::int32_t>(i), depth, sequence.chance(depth)});
        }
    }
    std::size_t worth = fixed ? drafted.size() : rows_worth(drafted, costs, used, value);
    worth = std::min(worth, static_cast<std::size_t>(std::max(0, target().options().decode_rows - used)));
    widths.assign(schedule.rows.size(), 0);
    for (const DraftedRow& row : std::span(drafted).first(worth)) ++widths[static_cast<std::size_t>(row.sequence)];
    for (std::size_t i = 0; i < schedule.rows.size(); ++i) {
        const ScheduledRows& rows = schedule.rows[i];
        Sequence& sequence = *running[rows.sequence];
        const std::int32_t more = cache().missing_pages(sequence.id(), rows.rows + widths[i]) -
                                  cache().missing_pages(sequence.id(), rows.rows);
        const bool fits = pages + more <= cache().free_pages();
        if (fits) pages += more;
        sequence.cut_draft(fits ? widths[i] : 0);
    }
    draft_ms = parts.now() - start;
}

// From the times and the outcome of a decode forward.
void BatchGenerator::State::learn(double verify_ms, std::int32_t emitted) {
    if (!drafts() || parts.speculation.mode != core::SpeculationMode::automatic) return;
    const std::int32_t plain_rows = std::accumulate(base.begin(), base.end(), 0);
    if (plain_rows > costs.widest()) return;
    const auto sequences = static_cast<std::int32_t>(segments.size());
    const double plain_ms = costs.verify_ms(plain_rows);
    costs.observe(static_cast<std::int32_t>(tokens.size()), verify_ms);
    if (!drafting || emitted < 1) return;
    const double ms = verify_ms + draft_ms;
    ledger.note(emitted, sequences, ms, plain_ms);
    constexpr double kBlend = 0.05;
    const double ratio = emitted * plain_ms / (sequences * std::max(ms, 1e-6));
    speedup = std::max(1.0, speedup + kBlend * (std::clamp(ratio, 0.2, 5.0) - speedup));
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
    if (s.parts.draft) s.model.emplace(std::move(s.parts.draft), std::move(s.parts.never_proposed), s.parts.now);
    s.warm_up();
    const auto rows = static_cast<std::size_t>(s.target().max_rows());
    s.tokens.reserve(rows);
    s.logit_rows.reserve(rows);
    s.running.reserve(s.most);
    s.loads.reserve(s.most);
    s.schedule.rows.reserve(s.most);
    s.segments.reserve(s.most);
    s.chosen.reserve(s.most);
    s.base.reserve(s.most);
    s.drafting_texts.reserve(s.most);
    s.steps.reserve(s.most);
    s.gains.reserve(s.most);
    s.widths.reserve(s.most);
    s.sources.reserve(s.most);
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
    s.waiting.push_back(std::make_unique<Sequence>(ticket, std::move(request), sink, s.parts, s.model.has_value()));
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
    const double begin = s.parts.now();
    s.end_cancelled();
    s.admit();
    s.plan();
    if (s.schedule.rows.empty()) return false;
    // Rows that the device samples come first.
    std::ranges::sort(s.schedule.rows, {}, [&s](const ScheduledRows& rows) {
        return std::pair(!s.running[rows.sequence]->samples_on_device(), rows.sequence);
    });
    s.draft();
    s.make_segments();
    const double start = s.parts.now();
    check(s.target().evaluate(s.schedule.row_class, s.segments), "every admitted sequence has its pages");
    s.last = s.schedule.row_class;
    s.start_sampling();
    const double forward_end = s.parts.now();
    const double verify_ms = forward_end - start;
    const std::int64_t before = s.counters.tokens;
    s.sample();
    s.counters.target_ms += verify_ms;
    s.counters.sample_ms += s.parts.now() - forward_end;
    if (s.last == kernels::RowClass::decode) s.learn(verify_ms, static_cast<std::int32_t>(s.counters.tokens - before));
    s.remove_ended();
    s.counters.step_ms += s.parts.now() - begin;
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
