// What a batch drafts: which texts, how many tokens, by which source, and which of them a forward verifies.
#include <algorithm>
#include <utility>

#include "speculative/batch_state.h"
#include "speculative/draft_gain.h"
#include "speculative/forward_times.h"

namespace foresay::speculative {

// Times forwards of several widths, once and within a time budget. False: there is no room for them now.
bool BatchGenerator::State::warm_up() {
    if (warm) return true;
    if (model && !model->warm_up(target())) return false;
    constexpr double kBudgetMs = 150.0;
    if (cache().free_sequences() == 0) kept.evict_text();
    kept.free_pages(core::pages_for(costs.widest()));
    warm = time_forwards(target(), costs, kBudgetMs, parts.now);
    if (warm) time_attention(target(), costs, kBudgetMs / 4.0, parts.now);
    return warm;
}

// Drafts of one text at a time, as those of a conversation.
void BatchGenerator::State::warm_up_alone() {
    alone.emplace(std::exchange(parts.drafters, {}), target(), parts.speculation, parts.now);
    const core::SequenceId id = cache().create();
    alone->warm_up(timed_place(id), false);
    cache().drop(id);
}

// What the drafters hold of an earlier text stays where the two may share beginnings.
void BatchGenerator::State::begin_alone(Sequence& sequence, core::SequenceId id) {
    const std::string_view salt = sequence.key().salt;
    if (!parts.reuse_prefixes || salt != drafted_salt) alone->forget();
    drafted_salt = salt;
    alone->rewind(0);
    sequence.draft_with(*alone, timed_place(id));
}

// What other texts have of this one in the draft model's cache.
void BatchGenerator::State::open_draft(Sequence& sequence) {
    if (!model || !parts.reuse_prefixes) return;
    PrefixCache::Found known;
    for (const auto& other : running) {
        const auto held = static_cast<std::int32_t>(other->model_draft.checked);
        if (held <= known.length) continue;
        const std::int32_t common = std::min(held, common_prefix(other->key(), sequence.key(), true));
        if (common > known.length && model->cache().continues_from(other->model_draft.id, common)) {
            known = {other->model_draft.id, common};
        }
    }
    model->open(sequence.model_draft, sequence.key(), known);
    count_model();
}

void BatchGenerator::State::count_model() {
    counters.draft_rows = model->counters().rows;
    counters.draft_cached_tokens = model->counters().cached_tokens;
    counters.draft_restored_tokens = model->counters().restored_tokens;
}

void BatchGenerator::State::step_model(std::span<const std::pair<double, Sequence*>> texts) {
    steps.clear();
    for (const auto& [gain, sequence] : texts) {
        steps.push_back({.text = &sequence->model_draft,
                         .tokens = sequence->tokens(),
                         .draft = sequence->draft_tokens(),
                         .live = &sequence->chain(),
                         .salt = parts.reuse_prefixes ? std::optional(sequence->key().salt) : std::nullopt,
                         .sampled = {}});
    }
    const double start = parts.now();
    model->step(steps);
    counters.draft_ms += parts.now() - start;
    count_model();
    for (std::size_t i = 0; i < texts.size(); ++i) {
        ++texts[i].second->round.steps;
        texts[i].second->take_sampled(steps[i].sampled);
    }
}

// Texts that are told how many tokens to draft get what is forced, then what the draft model drafts, or else what their
// lookup has. Returns the rows of the forward with them.
std::int32_t BatchGenerator::State::draft_fixed(std::int32_t used) {
    for (Sequence* sequence : fixed_texts) {
        sequence->begin_draft(sequence->longest_draft());
        while (sequence->draft_is_open() && sequence->proposal_is_forced()) sequence->take_proposal();
    }
    while (model) {
        gains.clear();
        for (Sequence* sequence : fixed_texts) {
            if (sequence->model_may_draft()) gains.emplace_back(0.0, sequence);
        }
        if (gains.empty()) break;
        step_model(gains);
    }
    for (Sequence* sequence : fixed_texts) {
        while (sequence->draft_is_open() && sequence->proposal().token >= 0) sequence->take_proposal();
    }
    for (std::size_t i = 0; i < schedule.rows.size(); ++i) {
        const Sequence& sequence = *running[schedule.rows[i].sequence];
        if (sequence.mode() != core::SpeculationMode::fixed) continue;
        widths[i] = std::min(sequence.drafted(), std::max(0, most_rows - used));
        used += widths[i];
    }
    return used;
}

// In tokens: what the draft model's next token for this text promises, without the time of the step.
double BatchGenerator::State::gain_of_model(const Sequence& sequence, double value, std::int32_t rows) const {
    const auto texts = static_cast<std::int32_t>(drafting_texts.size());
    // What the draft model has missed of the text is made up for once, in the hope of many drafts where it has seen
    // nothing; of few where it was not asked for a while, for that comes again. The hope is a cautious one: the text
    // may end early, and what was read is then lost.
    constexpr double kFewRounds = 8.0;
    constexpr double kManyRounds = 64.0;
    const double late_ms = model->catch_up_ms(sequence.model_draft, sequence.tokens().size());
    const bool now = ModelDrafts::joins_step(sequence.model_draft, sequence.tokens().size());
    const double rounds = now                            ? 1.0
                          : sequence.model_draft.drafted ? kFewRounds
                                                         : std::clamp(0.25 * sequence.room(), kFewRounds, kManyRounds);
    return draft_gain(sequence.acceptance(), costs,
                      {.rows = rows,
                       .texts = texts,
                       .further = sequence.draft_room(),
                       .survival = sequence.survival(),
                       .match = match_class(sequence.proposal().length),
                       .own_ms = costs.further_row_ms(attended(sequence)),
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
            if (better > value * model->next_step_ms(texts) / texts) return;
        }
        sequence.take_proposal();
    }
}

// Each step of the draft model serves the texts that gain most by it, as many as pay for it.
void BatchGenerator::State::draft_what_pays(std::int32_t used, double value) {
    for (;;) {
        std::int32_t rows = used;
        for (Sequence* sequence : drafting_texts) {
            take_proposals(*sequence, value, model_drafts && sequence->model_may_draft());
            rows += sequence->drafted();
        }
        if (!model_drafts) return;
        gains.clear();
        for (Sequence* sequence : drafting_texts) {
            if (sequence->model_may_draft()) gains.emplace_back(gain_of_model(*sequence, value, rows), sequence);
        }
        std::ranges::sort(gains, [](const auto& a, const auto& b) {
            return a.first != b.first ? a.first > b.first : a.second->ticket() < b.second->ticket();
        });
        double sum = 0.0;
        double best = 0.0;
        std::size_t count = 0;
        for (std::size_t i = 0; i < gains.size() && gains[i].first > 0.0; ++i) {
            sum += gains[i].first;
            const double net = sum - value * model->next_step_ms(static_cast<std::int32_t>(i) + 1);
            if (net <= best) continue;
            best = net;
            count = i + 1;
        }
        if (count == 0) break;
        step_model(std::span(gains).first(count));
    }
    for (Sequence* sequence : drafting_texts) take_proposals(*sequence, value, false);
}

// Rows that a forward may have at most, for drafts that have to pay to be added. A device samples so many, and the host
// would take longer for each further one than the forward does.
std::int32_t BatchGenerator::State::most_with_drafts(bool on_device) const {
    const std::int32_t most = std::min(costs.widest(), target().options().decode_rows);
    return on_device ? std::min(most, kernels::kTokenSlots) : most;
}

// Whether enough rows are left for drafts of texts that take `used` of `most`. On a device, a round that looks for
// drafts keeps the next forward from running ahead, which costs a tenth of one: few rows among many do not make up for
// that. 64 texts of 8B on an H200 were 9 % slower with drafts for the rows that ended texts had left.
bool BatchGenerator::State::leaves_room(std::int32_t used, std::int32_t most, bool on_device) {
    constexpr std::int32_t kLeastShare = 4;
    return on_device ? kLeastShare * (most - used) >= used : used < most;
}

// The others get what pays.
void BatchGenerator::State::draft_automatic(std::int32_t used) {
    const auto on_device = [](const Sequence* sequence) { return sequence->samples_on_device(); };
    const bool any_on_device = std::ranges::any_of(drafting_texts, on_device);
    const std::int32_t most = std::min(most_rows, most_with_drafts(any_on_device));
    if (!leaves_room(used, most, any_on_device) || !warm_up()) return;
    std::erase_if(drafting_texts, [](Sequence* sequence) { return !sequence->ledger.allows(); });
    if (drafting_texts.empty() || !ledger.allows()) return;
    drafting = true;
    model_drafts = model && model_ledger.allows();
    const double start = parts.now();
    for (Sequence* sequence : drafting_texts) sequence->begin_draft(sequence->longest_draft());
    for (Sequence* sequence : drafting_texts) sequence->round.own_ms = costs.further_row_ms(attended(*sequence));
    const double value =
        speedup * static_cast<double>(schedule.rows.size()) / (costs.verify_ms(used) + plain_attention_ms);
    draft_what_pays(used, value);
    drafted.clear();
    for (std::size_t i = 0; i < schedule.rows.size(); ++i) {
        const Sequence& sequence = *running[schedule.rows[i].sequence];
        if (sequence.mode() != core::SpeculationMode::automatic) continue;
        for (std::int32_t depth = 0; depth < sequence.drafted(); ++depth) {
            drafted.push_back({static_cast<std::int32_t>(i), depth, sequence.chance(depth), sequence.round.own_ms});
        }
    }
    const std::size_t worth = std::min(rows_worth(drafted, costs, used, value), static_cast<std::size_t>(most - used));
    for (const DraftedRow& row : std::span(drafted).first(worth)) ++widths[static_cast<std::size_t>(row.sequence)];
    draft_ms = parts.now() - start;
}

// Positions that the next row of a text attends to.
std::int32_t BatchGenerator::State::attended(const Sequence& sequence) const {
    const std::int32_t window = cache().window();
    return window > 0 ? std::min(window, sequence.held()) : sequence.held();
}

// Drafts for the sequences of a decode forward, as far as there are rows and pages for them.
void BatchGenerator::State::draft() {
    drafting = false;
    model_drafts = false;
    draft_ms = 0.0;
    ++plain_rounds;
    forwards_ahead = 0;
    for (const ScheduledRows& rows : schedule.rows) running[rows.sequence]->begin_draft(0);
    if (schedule.row_class != kernels::RowClass::decode) return;
    std::int32_t used = 0;
    std::int32_t pages = 0;
    most_rows = target().options().decode_rows;
    std::int32_t free_rows = target().max_rows();
    drafting_texts.clear();
    fixed_texts.clear();
    for (const ScheduledRows& rows : schedule.rows) {
        Sequence& sequence = *running[rows.sequence];
        pages += cache().missing_pages(sequence.id(), rows.rows);
        if (schedule.mixed && loads[rows.sequence].prefill_rows > 0) {
            // The rows of a prompt are no part of what drafts are weighed against: on a host, which alone mixes,
            // further rows cost as much after many as after few. At its end there are logits.
            free_rows -= rows.rows;
            if (sequence.samples_after(rows.rows)) --most_rows;
            continue;
        }
        used += rows.rows;
        if (!sequence.samples_after(rows.rows)) continue;
        if (sequence.drafts_alone()) {
            if (!sequence.has_tokens()) return;  // the last rows of its prompt
            sequence.draft_alone();
            const std::int32_t drafted = sequence.drafted() + (sequence.open_slot() >= 0 ? 1 : 0);
            kept.free_pages(cache().missing_pages(sequence.id(), rows.rows + drafted));
            return;
        }
        if (sequence.mode() == core::SpeculationMode::fixed) fixed_texts.push_back(&sequence);
        if (sequence.mode() == core::SpeculationMode::automatic) drafting_texts.push_back(&sequence);
    }
    most_rows = std::min(most_rows, free_rows);
    widths.assign(schedule.rows.size(), 0);
    // Who decodes waits no longer for prompts that the draft model has to read than for the target's.
    const std::int32_t whole = target().capacity();
    if (model) {
        const std::int32_t beside = schedule.mixed ? 0 : std::min(parts.prefill_rows_beside, whole);
        model->begin_round(running.size() > 1 ? beside : whole);
        if (counters.tokens > 0) model->expect_sampling(counters.sample_ms / static_cast<double>(counters.tokens));
    }
    if (!fixed_texts.empty()) used = draft_fixed(used);
    plain_rows = used;
    plain_attention_ms = 0.0;
    for (std::size_t i = 0; i < schedule.rows.size(); ++i) {
        const Sequence& sequence = *running[schedule.rows[i].sequence];
        if (schedule.mixed && loads[schedule.rows[i].sequence].prefill_rows > 0) continue;
        const std::int32_t further = schedule.rows[i].rows + widths[i] - 1;
        plain_attention_ms +=
            costs.first_row_ms(attended(sequence)) + further * costs.further_row_ms(attended(sequence));
    }
    if (!drafting_texts.empty()) draft_automatic(used);
    for (std::size_t i = 0; i < schedule.rows.size(); ++i) {
        const ScheduledRows& rows = schedule.rows[i];
        Sequence& sequence = *running[rows.sequence];
        const std::int32_t more = cache().missing_pages(sequence.id(), rows.rows + widths[i]) -
                                  cache().missing_pages(sequence.id(), rows.rows);
        const bool fits = pages + more <= cache().free_pages();
        if (fits) pages += more;
        sequence.cut_draft(fits ? widths[i] : 0);
        if (sequence.drafted() > 0) plain_rounds = 0;
    }
}

// What the draft model has brought in a round, beyond what lookups would have: its tokens that they did not propose.
// And what that took: its steps, the rows of its tokens, and a part of what reading the texts took.
void BatchGenerator::State::learn_of_model(double plain_ms, double row_ms, std::int32_t sequences) {
    constexpr double kPaidInARound = 1.0 / 32.0;
    double ms = model->steps_ms();
    std::int32_t gained = 0;
    for (Sequence* sequence : drafting_texts) {
        if (sequence->round.steps == 0) continue;
        gained += sequence->round.model_gains;
        const double paid = kPaidInARound * sequence->model_draft.owed_ms;
        sequence->model_draft.owed_ms -= paid;
        ms += (row_ms + sequence->round.own_ms) * sequence->round.model_rows + paid;
    }
    model_ledger.note(sequences + gained, sequences, plain_ms + ms, plain_ms);
}

// A text is over, or gives its place up: no draft will pay any more for the reading of it.
void BatchGenerator::State::settle(Sequence& sequence) {
    if (!warm || sequence.model_draft.owed_ms <= 0.0) return;
    const auto texts = static_cast<std::int32_t>(std::max<std::size_t>(running.size(), 1));
    model_ledger.charge(sequence.model_draft.owed_ms / costs.verify_ms(std::min(texts, costs.widest())));
    sequence.model_draft.owed_ms = 0.0;
}

// From the times and the outcome of a decode forward.
void BatchGenerator::State::learn(double verify_ms) {
    if (!warm) return;
    const auto rows = static_cast<std::int32_t>(current.tokens.size());
    const double plain_ms = drafting ? costs.verify_ms(plain_rows) + plain_attention_ms : 0.0;
    const double more_ms =
        drafting ? costs.verify_ms(std::min(rows, costs.widest())) - costs.verify_ms(plain_rows) : 0.0;
    double attention_ms = plain_attention_ms;
    if (drafting) {
        for (const Sequence* sequence : drafting_texts) attention_ms += sequence->round.rows * sequence->round.own_ms;
    }
    // Attention, as it was measured, is at most a part of what the forward took.
    if (rows <= costs.widest()) costs.observe(rows, std::max(verify_ms - attention_ms, 0.1 * verify_ms));
    if (!drafting) return;
    // For all texts of the forward, which wait for the drafts of a few: a token of each that did not draft.
    const auto sequences = static_cast<std::int32_t>(current.chosen.size());
    std::int32_t emitted = sequences - static_cast<std::int32_t>(drafting_texts.size());
    for (const Sequence* sequence : drafting_texts) emitted += sequence->round.emitted;
    if (emitted < 1) return;
    // What reading texts takes is for many rounds, and says nothing about this one.
    const double reading_ms = model ? model->reading_ms() : 0.0;
    const double ms = verify_ms + std::max(0.0, draft_ms - reading_ms);
    ledger.note(emitted, sequences, ms, plain_ms);
    // A text bears what its own rows and draft steps add, for all texts, and has its own tokens. So one that is drafted
    // for badly is left in peace, whatever the others gain. By what they usually cost: what interrupts one forward must
    // not be blamed on the few that drafted in it.
    const double row_ms = rows > plain_rows ? std::max(0.0, more_ms) / (rows - plain_rows) : 0.0;
    std::int32_t steps_of_all = 0;
    for (const Sequence* sequence : drafting_texts) steps_of_all += sequence->round.steps;
    const double step_ms = steps_of_all > 0 ? model->steps_ms() / steps_of_all : 0.0;
    if (steps_of_all > 0) learn_of_model(plain_ms, row_ms, sequences);
    for (Sequence* sequence : drafting_texts) {
        const Sequence::Round& round = sequence->round;
        if (round.rows == 0 && round.steps == 0) continue;
        const double own_ms = (row_ms + round.own_ms) * round.rows + step_ms * round.steps;
        sequence->ledger.note(round.emitted, 1, plain_ms + own_ms * sequences, plain_ms);
    }
    constexpr double kBlend = 0.05;
    const double ratio = emitted * plain_ms / (sequences * std::max(ms, 1e-6));
    speedup = std::max(1.0, speedup + kBlend * (std::clamp(ratio, 0.2, 5.0) - speedup));
}

}  // namespace foresay::speculative
