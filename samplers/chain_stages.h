// samplers/chain_stages.h: the stages of a chain with one set of states, and how they run on a row. Chain and
// DraftChain have one each.
//
// run() keeps the candidates in scratch_. Step stages change them there, and so do backends that run a compiled plan,
// with the same bits. Before the first stage that does not see the whole vocabulary, the cut keeps the best candidates.
// A host stage gets the list itself: its result is checked against the contract, and when it fails, the list is
// restored. On some of its calls, fewer and fewer of them, it is asked twice, and must answer the same.
//
// Threads:  one caller at a time.
// Errors:   run() and accept() throw nothing; failures are kept per stage.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/sampling.h"
#include "samplers/chain.h"

namespace foresay::samplers {

class ChainStages {
public:
    struct Entry {
        std::string name;
        std::vector<ParameterValue> parameters;  // complete
        std::shared_ptr<const StageFactory> factory;
        std::shared_ptr<const Stage> stage;
        StageSpec::OnError on_error = StageSpec::OnError::stop;
        std::uint32_t stream = 0;           // of keyed random numbers
        std::unique_ptr<StageState> state;  // null: stateless
        std::string broken;                 // why the state can no longer be trusted; empty: it can
        StageReport report;
        double likely_dropped = 0.0;  // moving share of calls that dropped one of the best candidates
    };

    // The live stages of a chain.
    ChainStages(const ChainSpec& spec, const Vocabulary& vocabulary);
    // The stages of `live` for the draft. follow() copies the states. `without_masks`: leaves out host stages that only
    // drop candidates.
    explicit ChainStages(const ChainStages& live, Phase phase, bool without_masks = false);

    void begin(std::uint64_t seed, std::uint64_t branch, std::span<const std::int32_t> history, std::size_t capacity,
               std::size_t begun);
    // Copies states, history and key of `live`, from which this one was made.
    void follow(const ChainStages& live);
    // Runs the stages on a row and samples a token. In phase `decide` a failure is left in failure().
    kernels::SampledToken run(std::span<float> logits);
    // The same from the candidates that the plan of compile_prefix() keeps.
    kernels::SampledToken run(const kernels::Candidates& candidates);
    void accept(std::int32_t token);
    const char* compile(PlanBuffer& buffer) const;
    bool compile_prefix(PlanBuffer& buffer) const;
    const char* host_stage() const;
    // Whether a host stage that only drops candidates often drops likely ones.
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
    kernels::SamplingStep step_of(const Entry& entry, std::vector<kernels::TokenCount>& counts) const;
    // The plan of active stages [0, end).
    void compile_steps(std::size_t end, PlanBuffer& buffer) const;
    kernels::SampledToken run_from(std::size_t first);
    std::size_t first_host() const;  // index into active_, its size when there is none
    bool run_host(Entry& entry);
    // Calls the stage on `candidates`, whose contents are in saved_*, and checks the result: empty, or what went wrong.
    std::string_view call_host(Entry& entry, kernels::Candidates& candidates);
    // Calls it again on the same candidates. Whether the result was the same, which stays in `candidates`.
    bool answers_again(Entry& entry, const StageContext& context, kernels::Candidates& candidates);
    void note_dropped(Entry& entry, const kernels::Candidates& result, std::int32_t count);
    std::string_view check_result(const Entry& entry, const kernels::Candidates& result);
    void fail(Entry& entry, std::string_view why);

    std::uint64_t id_ = 0;     // a draft's stages have the id of the live ones
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
    std::size_t live_length_ = 0;  // of a draft: history copied from the live stages; the rest was advanced
    bool decided_ = false;         // scratch_ holds what the token at history_.size() was sampled from

    bool failed_ = false;
    StageFailure failure_;
    kernels::SamplingScratch scratch_;
    std::vector<std::vector<kernels::TokenCount>> counts_;
    std::vector<std::int32_t> saved_ids_;
    std::vector<float> saved_logits_;
    std::vector<std::int32_t> first_ids_;  // the first of two answers
    std::vector<float> first_logits_;
    std::vector<std::int32_t> place_;  // by id: 1 + index in saved_*; 0: not there
};

}  // namespace foresay::samplers
