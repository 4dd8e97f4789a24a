// speculative/batch_state.h: what a BatchGenerator is made of; shared by the files that implement it:
// batch_generator.cpp says who runs and which rows a forward has, batch_drafts.cpp what is drafted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "speculative/prefix_cache.h"
#include "speculative/row_budget.h"
#include "speculative/sequence.h"

namespace foresay::speculative {

// The rows of a forward, by segment.
struct Forward {
    kernels::RowClass row_class = kernels::RowClass::decode;
    std::int32_t prompt_rows = 0;  // of a forward of decode rows: those that read prompts beside them
    std::vector<kernels::TokenRef> tokens;
    std::vector<std::int32_t> logit_rows;
    std::vector<core::Segment> segments;
    std::vector<Sequence*> chosen;   // null: the sequence has ended, or takes no rows any more
    std::vector<std::int32_t> base;  // rows without the draft
    std::vector<RowSource> sources;  // where there are logit rows

    void clear(kernels::RowClass of) {
        row_class = of;
        prompt_rows = 0;
        tokens.clear();
        logit_rows.clear();
        segments.clear();
        chosen.clear();
        base.clear();
    }
    void reserve(std::size_t rows, std::size_t sequences) {
        tokens.reserve(rows);
        logit_rows.reserve(rows);
        segments.reserve(sequences);
        chosen.reserve(sequences);
        base.reserve(sequences);
        sources.reserve(sequences);
    }
};

struct BatchGenerator::State {
    BatchParts parts;
    ScheduleLog log;
    std::size_t most = 0;                            // sequences that run at once
    std::vector<std::unique_ptr<Sequence>> running;  // in the order of admission
    std::vector<std::unique_ptr<Sequence>> waiting;  // in the order of arrival
    std::uint64_t tickets = 0;
    std::map<std::string, std::uint64_t, std::less<>> served;  // rows, by queue; of queues with sequences
    Turns turns;
    BatchCounters counters;
    PrefixCache kept;  // texts that have ended
    std::vector<SequenceLoad> loads;
    std::vector<SequenceLoad> next_loads;  // while a forward runs
    Schedule schedule;
    Forward current;
    Forward ahead;                                      // runs before the host knows the tokens of `current`
    bool runs_ahead = false;                            // there is one
    std::int32_t plain_rounds = 0, forwards_ahead = 0;  // in a row
    DeviceSampling sampling;
    std::vector<std::pair<Sequence*, std::span<float>>> firsts;  // first rows that the host samples, all at once
    std::vector<WaitingRequest> candidates;
    std::vector<std::size_t> places;  // of the candidates, in `waiting`
    std::vector<RunningRequest> holders;
    // Of drafts:
    CostModel costs;
    RowLedger ledger;
    std::optional<ModelDrafts> model;
    // What the draft model has lost against lookups alone: pauses it, and not them.
    RowLedger model_ledger;
    Acceptance everyone;                    // how often the draft model is right, in all texts
    std::vector<Sequence*> drafting_texts;  // texts of the round that draft what pays
    std::vector<Sequence*> fixed_texts;     // and those that draft as many tokens as they were told
    std::vector<DraftStep> steps;
    std::vector<std::pair<double, Sequence*>> gains;
    double speedup = 1.0;  // tokens per millisecond with drafts, in those without, over the last rounds
    std::vector<DraftedRow> drafted;
    std::vector<std::int32_t> widths;  // of the drafts, by segment
    std::int32_t most_rows = 0;        // of the round, drafts included, without those of prompts
    bool warm = false;                 // costs were measured
    std::optional<TextDrafts> alone;   // where one text runs at a time
    std::string drafted_salt;          // of the text that it drafted for last
    bool stepping = false;             // a sink is calling
    // About the drafts that are to pay, in this round:
    bool drafting = false;            // they were allowed
    bool model_drafts = false;        // and the draft model among them
    std::int32_t plain_rows = 0;      // rows without them
    double plain_attention_ms = 0.0;  // what attention adds to those, by their positions
    double draft_ms = 0.0;            // what drafting took
    double ready = 0.0;               // when the tokens of the last forward were there

    explicit State(BatchParts given)
        : parts(std::move(given)),
          log(parts.schedule_log),
          kept({.cache = &parts.target->cache(),
                .classes_agree = parts.classes_agree,
                .ops = &parts.target->ops(),
                .store = parts.pages.get(),
                .keeps_left = parts.shares_target}),
          costs(parts.target->options().decode_rows) {}

    core::Context& target() const { return *parts.target; }
    core::KvCache& cache() const { return parts.target->cache(); }
    bool drafts() const { return parts.make_drafter || model; }
    TimedPlace timed_place(core::SequenceId id) {
        return {.id = id,
                .make_room = [this, id](std::int32_t rows) { kept.free_pages(cache().missing_pages(id, rows)); }};
    }
    Sequence* find(Ticket ticket) {
        for (const auto* list : {&running, &waiting}) {
            for (const auto& sequence : *list) {
                if (sequence->ticket() == ticket && !sequence->ended()) return sequence.get();
            }
        }
        return nullptr;
    }

    double next_deadline() const;
    void end_cancelled();
    void end_before_forward(Sequence& sequence, FinishReason finish);
    void log_plan();
    void admit();
    WaitingRequest waits(const Sequence& sequence) const;
    std::size_t next();
    bool waits_for_another(const Sequence& sequence) const;
    bool give_pages(Sequence& sequence);
    void release_left();
    core::SequenceId open(const Sequence& sequence);
    void open_draft(Sequence& sequence);
    void warm_up_alone();
    void begin_alone(Sequence& sequence, core::SequenceId id);
    void count_model();
    std::int32_t pages_to_grow(const Sequence& sequence) const;
    std::int32_t pages_to_grow(core::SequenceId id, std::int32_t rows) const;
    std::int32_t turn_of(std::span<const SequenceLoad> of) const;
    void plan();
    bool warm_up();
    void draft();
    std::int32_t draft_fixed(std::int32_t used);
    std::int32_t most_with_drafts(bool on_device) const;
    static bool leaves_room(std::int32_t used, std::int32_t most, bool on_device);
    void draft_automatic(std::int32_t used);
    void draft_what_pays(std::int32_t used, double value);
    void take_proposals(Sequence& sequence, double value, bool prefer_model);
    double gain_of_model(const Sequence& sequence, double value, std::int32_t rows) const;
    void step_model(std::span<const std::pair<double, Sequence*>> texts);
    void start_sampling();
    void learn(double verify_ms);
    std::int32_t attended(const Sequence& sequence) const;
    void learn_of_model(double plain_ms, double row_ms, std::int32_t sequences);
    void settle(Sequence& sequence);
    Sequence& preempt(const char* word);
    void release(Sequence& sequence);
    void remove_ended();
    void make_segments();
    bool take_ahead();
    bool take_evaluated();
    bool close_drafts();
    void observe_alone(double verify_ms, double round_ms, double emit_ms);
    bool may_run_ahead();
    void decide_for_device();
    void run_ahead();
    void wait_for_rows();
    void decide_first_rows();
    void sample(double verify_ms);
};

}  // namespace foresay::speculative
