// samplers/chain_stages.h: the stages of a chain with one set of states, and how they run on a row. Chain and
// DraftChain have one each.
//
// run() keeps the candidates in scratch_. Step stages change them there, and so do backends that run a compiled plan,
// with the same bits; masks run as steps. Before the first stage that does not act on the whole vocabulary, the cut
// keeps the best candidates. A process stage gets the list itself: its result is checked against the contract, and when
// it fails, the list is restored. A test stage is asked late, and only about tokens that may be sampled: the best ones
// at the cut, or the winner (chain_tests.cpp). Where a backend runs a plan, it keeps a few more candidates than the
// cut, and what the stages before it leave of them is the cut's list. Where too few are left, it is so only if the
// stages after the cut drop all that may be missing, as a top_p does after a likely candidate. On some of its calls,
// fewer and fewer of them, a stage is asked twice, and must answer the same.
//
// Threads:  one caller at a time.
// Errors:   run() and accept() throw nothing; failures are kept per stage.
#pragma once

#include <atomic>
#include <bit>
#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "kernels/sampling.h"
#include "samplers/chain.h"

namespace foresay::samplers {

class ChainStages {
public:
    // What a stage's copies in drafts have cost, which may run in other threads.
    struct DraftMeter {
        std::atomic<std::int64_t> calls{0}, nanoseconds{0};
    };
    struct Entry {
        std::string name;
        std::vector<ParameterValue> parameters;  // complete
        std::shared_ptr<const StageFactory> factory;
        std::shared_ptr<const Stage> stage;
        StageSpec::OnError on_error = StageSpec::OnError::stop;
        std::uint32_t stream = 0;           // of keyed random numbers
        std::unique_ptr<StageState> state;  // null: stateless
        std::string broken;                 // why the state can no longer be trusted; empty: it can
        bool misled = false;                // of a draft: by a guess that it cannot follow, which will not be accepted
        mutable StageReport report;
        std::shared_ptr<DraftMeter> drafts;  // shared by the live stage and its copies
        double likely_dropped = 0.0;         // moving share of calls that dropped one of the best candidates
        // Of mask stages: the last masks. Rows in flight borrow them.
        mutable std::vector<std::vector<std::uint32_t>> masks;
        mutable std::size_t last_mask = 0;
        // Of feedback stages: the candidates that it received for the token being sampled.
        std::vector<std::int32_t> received_ids;
        std::vector<float> received_logits;

        StageKind kind() const { return stage->kind(); }
        // Whether it runs within a plan.
        bool in_plan() const { return kind() == StageKind::step || kind() == StageKind::mask; }
        // Where the host runs it, a mask that can also test costs less so.
        bool can_test() const { return kind() == StageKind::test || (kind() == StageKind::mask && stage->tests()); }
        // Whether it compares all candidates of a row with each other, within a plan.
        bool compares_row() const {
            return kind() == StageKind::step && stage->whole_vocabulary() && stage->compares();
        }
        // Whether it drops tokens, each by itself.
        bool judges() const { return kind() == StageKind::mask || kind() == StageKind::test; }
        bool clonable() const { return factory->description().traits.clonable; }
        bool feedback() const { return factory->description().traits.memory == StageMemory::feedback; }
    };

    // The live stages of a chain.
    ChainStages(const ChainSpec& spec, const Vocabulary& vocabulary);
    // The stages of `live` for the draft. follow() copies the states.
    ChainStages(const ChainStages& live, Following following);

    void begin(std::uint64_t seed, std::uint64_t branch, std::span<const std::int32_t> history, std::size_t capacity,
               std::size_t begun);
    // Copies states, history and key of `live`, from which this one was made.
    void follow(const ChainStages& live);
    // Runs the stages on a row and samples a token. In phase `decide` a failure is left in failure().
    kernels::SampledToken run(std::span<float> logits);
    // The same from the candidates that the plan of compile_prefix() keeps, or, where they are too few (needs_row()),
    // from the row that it has run on. `ahead`: the plan was that of a draft's stages.
    kernels::SampledToken run(const kernels::Candidates& candidates, bool ahead);
    kernels::SampledToken run_again(std::span<float> logits, bool ahead);
    bool needs_row() const { return needs_row_; }
    void accept(std::int32_t token);
    ChainTrace trace(std::span<float> logits);  // chain_trace.cpp
    const char* compile(PlanBuffer& buffer) const;
    bool compile_prefix(PlanBuffer& buffer) const;
    const char* host_stage() const;
    // As those of Chain and DraftChain.
    bool forces() const;
    void forced(std::vector<std::int32_t>& tokens) const;
    // Whether a host stage that only drops candidates often drops likely ones.
    bool masks_matter() const;

    const StageFailure* failure() const { return failed_ ? &failure_ : nullptr; }
    kernels::NoiseKey key() const;

    const std::vector<Entry>& entries() const { return entries_; }
    std::span<const std::int32_t> history() const { return history_; }
    bool greedy() const { return greedy_; }
    bool feedback() const { return feedback_; }
    std::int64_t sampled() const { return sampled_; }  // tokens, since the stages were made
    const Vocabulary& vocabulary() const { return *vocabulary_; }
    std::uint64_t id() const { return id_; }

private:
    static constexpr std::string_view kLeftNone = "it left no token";
    static constexpr std::string_view kTwoAnswers =
        "asked twice about the same candidates, it gave two answers, so the text would depend on how it is computed";

    // Which calls of a stage are checked by calling it again: the first eight, then 16, 32, 64 and so on, so that the
    // cost vanishes.
    static bool is_checked(std::int64_t call) {
        return call <= 8 || std::has_single_bit(static_cast<std::uint64_t>(call));
    }
    // Counts all the time that a stage takes here: its own and what is done for it. Of a step stage, only that of its
    // state.
    class Stopwatch {
    public:
        enum class Of : std::uint8_t { call, state };
        Stopwatch(const Entry& entry, Phase phase, Of of = Of::call);
        ~Stopwatch();
        Stopwatch(const Stopwatch&) = delete;
        Stopwatch& operator=(const Stopwatch&) = delete;

    private:
        const Entry& entry_;
        Phase phase_;
        Of of_;
        std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    };

    void plan_stages();
    StageContext context_for(const Entry& entry, Phase phase) const;
    // Sets the step of a stage that runs within a plan: empty, or what went wrong.
    std::string_view make_step(const Entry& entry, std::vector<kernels::TokenCount>& counts,
                               kernels::SamplingStep& step) const;
    std::string_view make_mask(const Entry& entry, kernels::SamplingStep& step) const;
    void begin_plan(PlanBuffer& buffer) const;
    // Adds the step of active stage `at`: nullptr, or the name of a stage that failed.
    const char* add_step(std::size_t at, PlanBuffer& buffer) const;
    // The stages from active stage `first` on. `planned`: not those before the cut that a plan has run.
    kernels::SampledToken run_from(std::size_t first, bool planned = false, bool ahead = false);
    bool run_stage(Entry& entry, std::vector<kernels::TokenCount>& counts);
    // Whether a plan leaves the stage to the host. `ahead`: a plan of a draft's stages.
    static bool left_out(const Entry& entry, bool ahead) { return !entry.in_plan() || (ahead && !entry.clonable()); }
    std::size_t first_left_out(bool ahead) const;  // index into active_, its size when there is none
    bool of_draft() const { return phase_ == Phase::propose; }
    // How many candidates a plan keeps for the stages that it leaves out before the cut.
    std::int32_t kept_before_cut() const;
    bool run_process(Entry& entry);
    // Calls the stage on `candidates`, whose contents are in saved_*, and checks the result: empty, or what went wrong.
    std::string_view call_process(Entry& entry, kernels::Candidates& candidates);
    // Calls it again on the same candidates. Whether the result was the same, which stays in `candidates`.
    bool answers_again(Entry& entry, const StageContext& context, kernels::Candidates& candidates);
    void note_dropped(Entry& entry, const kernels::Candidates& result, std::int32_t count);
    void note_dropped(Entry& entry, bool dropped);
    std::string_view check_result(const Entry& entry, const kernels::Candidates& result);
    // For a trace: adds a column after a stage, or after the cut. note_stage() returns false when the generation has to
    // stop.
    void note_column(std::string_view stage, bool best_only);
    bool note_stage(const Entry& entry, std::int64_t failures_before);
    // Counts a failure. False: the generation has to stop.
    bool fail(Entry& entry, std::string_view why);
    std::string tail_of_text() const;

    // Test stages, in chain_tests.cpp. Each returns false when the generation has to stop.
    std::string_view call_test(Entry& entry, std::span<const std::int32_t> ids, std::vector<std::uint8_t>& keep);
    bool test_list(Entry& entry, bool may_drop_all = false);  // the candidates are a list
    // The list has fewer candidates than the cut would keep. Whether the stages after the cut drop all that are
    // missing, of which is known only that their logits are at most `bound`.
    bool missing_are_dropped(float bound);
    bool test_ids();  // the pending stages, about asked_ids_; those that fail leave the row
    bool has_dropped() const;
    bool test_best(std::int32_t count);
    bool test_all();
    bool test_winner(kernels::SampledToken& sampled);
    bool none_left();  // after the pending stages have dropped every candidate
    void ask_about(std::int32_t id);
    void ask_about_best(std::int32_t count);
    void leave_out(std::size_t pending);
    void forget_tests();

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
    std::size_t answer_ = 0;  // where in the history the answer begins
    std::vector<std::int32_t> history_;
    std::size_t live_length_ = 0;  // of a draft: history copied from the live stages; the rest was advanced
    bool decided_ = false;         // scratch_ holds what the token at history_.size() was sampled from

    std::int64_t sampled_ = 0;  // tokens that live stages have accepted

    bool failed_ = false;
    bool needs_row_ = false;
    StageFailure failure_;
    ChainTrace* trace_ = nullptr;  // while a row is traced
    kernels::SamplingScratch scratch_;
    std::vector<std::vector<kernels::TokenCount>> counts_;
    std::vector<std::int32_t> saved_ids_;
    std::vector<float> saved_logits_;
    std::vector<std::int32_t> first_ids_;  // the first of two answers
    std::vector<float> first_logits_;
    std::vector<std::int32_t> place_;  // by id: 1 + index in saved_*; 0: not there

    // Test stages that have seen the row pass by, and what they have said since.
    struct Dropped {
        std::int32_t id;
        float logit;
        std::uint32_t by;  // a bit for each of pending_
    };
    std::vector<std::size_t> pending_;     // indices of entries_
    std::vector<std::int32_t> verdicts_;   // by id: 0: not asked about, -1: may follow, else 1 + index of dropped_
    std::vector<std::int32_t> asked_;      // ids with a verdict
    std::vector<std::int32_t> asked_ids_;  // of the next call
    std::vector<Dropped> dropped_;
    std::vector<std::uint8_t> keep_, again_;
};

}  // namespace foresay::samplers
