// samplers/stage_walk.h: what Chain and DraftChain share: stages with one set of states, and running them on a row.
//
// Threads:  one caller at a time.
// Errors:   run() and accept() throw nothing; failures are kept per stage.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "samplers/chain.h"

namespace foresay::samplers {

class StageWalk {
public:
    struct Entry {
        std::string name;
        std::vector<ParameterValue> parameters;  // complete
        std::shared_ptr<const StageFactory> factory;
        std::shared_ptr<const Stage> stage;
        StageSpec::OnError on_error = StageSpec::OnError::stop;
        std::uint32_t stream = 0;           // of keyed numbers
        std::unique_ptr<StageState> state;  // null: stateless
        std::string broken;                 // why the state cannot be trusted any more; empty: it can
        StageReport report;
        double likely_dropped = 0.0;  // share of late calls that dropped one of the best candidates
    };

    // The live walk of a chain.
    StageWalk(const ChainSpec& spec, const Vocabulary& vocabulary);
    // A walk of `live`'s stages for the draft. States are made, not yet copied. `without_masks`: host stages that only
    // drop candidates are left out.
    explicit StageWalk(const StageWalk& live, Phase phase, bool without_masks = false);

    void begin(std::uint64_t seed, std::uint64_t branch, std::span<const std::int32_t> history, std::size_t capacity);
    // Takes over states, history and key of `live`, which this walk was made from.
    void follow(const StageWalk& live);
    // Runs the stages on a row; then draws. In phase `decide` a failure may be left in failure().
    kernels::Drawn run(std::span<float> logits);
    // The same from what compile_head() leaves of the row.
    kernels::Drawn run(const kernels::Candidates& head);
    void accept(std::int32_t token);
    const char* compile(PlanBuffer& buffer) const;
    bool compile_head(PlanBuffer& buffer) const;
    const char* host_stage() const;
    // Whether host stages that only drop candidates drop likely ones often.
    bool masks_matter() const;

    const StageFailure* failure() const { return failed_ ? &failure_ : nullptr; }
    kernels::NoiseKey key() const;

    const std::vector<Entry>& entries() const { return entries_; }
    std::span<const std::int32_t> history() const { return history_; }
    bool greedy() const { return greedy_; }
    const Vocabulary& vocabulary() const { return *vocabulary_; }
    std::uint64_t id() const { return id_; }

private:
    void plan_stages();
    void forget_states();
    kernels::DrawStep step_of(const Entry& entry, std::vector<kernels::TokenCount>& counts) const;
    void compile_steps(std::size_t ops, PlanBuffer& buffer) const;
    kernels::Drawn run_from(std::size_t op);
    std::size_t first_host() const;  // index into active_, its size when there is none
    bool run_host(Entry& entry);
    void note_dropped(Entry& entry, const kernels::Candidates& result, std::int32_t count);
    std::string_view check_result(const Entry& entry, const kernels::Candidates& result);
    void fail(Entry& entry, std::string_view why);
    std::vector<kernels::TokenCount>& counts_for(std::size_t op) { return counts_[op]; }

    std::uint64_t id_ = 0;     // of the live walk; a draft's walk has its live walk's
    std::uint64_t epoch_ = 0;  // counts begin()
    Phase phase_ = Phase::decide;
    const Vocabulary* vocabulary_;
    std::vector<Entry> entries_;
    std::vector<std::size_t> active_;  // entries that do something, in order
    std::size_t cut_before_ = 0;       // index into active_
    std::int32_t cut_ = 0;             // 0: none
    bool cut_replaces_ = false;        // the stage at cut_before_ is a top_k that the cut does already
    bool greedy_ = false;
    bool feedback_ = false;

    std::uint64_t seed_ = 0;
    std::uint64_t branch_ = 0;
    std::vector<std::int32_t> history_;
    std::size_t live_length_ = 0;  // of a draft's walk: history taken over, the rest was advanced
    bool decided_ = false;         // scratch_ holds what the token at history_.size() was drawn from

    bool failed_ = false;
    StageFailure failure_;
    kernels::DrawScratch scratch_;
    std::vector<std::vector<kernels::TokenCount>> counts_;
    std::vector<std::int32_t> saved_ids_;
    std::vector<float> saved_logits_;
    std::vector<std::int32_t> place_;  // by id: 1 + index in saved_*, 0 when it is not there
};

}  // namespace foresay::samplers
