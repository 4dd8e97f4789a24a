// samplers/chain.h: an ordered list of stages that shapes a row of logits, and samples a token from the result.
//
// The live states follow the emitted tokens: begin() with the tokens so far, then decide() and accept() in turn.
// Nothing is ever rolled back. DraftChain is the same chain with copies of the states, which run ahead of the live
// ones.
//
// State:    at begin() the state of every stage is a function of the token history alone (feedback stages start from
//           scratch), so a repeated generation starts exactly where the first one did.
// Threads:  one caller at a time per Chain or DraftChain; compile() and DraftChain::start() only read the Chain.
// Cost:     no allocation per token once warm. Sampling: see kernels/sampling.h. Penalties cost O(distinct tokens in
//           the window).
// Errors:   the constructor throws Error: for an unknown stage, and StageError for its parameters (unknown, wrong type,
//           out of range, a plugin that refuses).
//           decide() does not throw: the Decision names the stage that failed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "kernels/sampled_token.h"
#include "kernels/sampling_plan.h"
#include "samplers/stage.h"

namespace foresay::samplers {

// One stage as a configuration states it.
struct StageSpec {
    std::string name;
    Parameters parameters;                        // the others have their defaults
    std::shared_ptr<const StageFactory> factory;  // null: the built-in stage of that name
    // When the stage fails or breaks its contract: `stop` ends the generation with the failure; `skip` leaves the stage
    // out for that token and counts the failure. stop is the default, because skipping changes the text.
    enum class OnError : std::uint8_t { stop, skip } on_error = OnError::stop;
};

using ChainSpec = std::vector<StageSpec>;

// A stage of a chain that cannot be made.
class StageError : public Error {
public:
    StageError(std::string stage, std::string parameter, const std::string& message)
        : Error(message), stage_(std::move(stage)), parameter_(std::move(parameter)) {}
    const std::string& stage() const { return stage_; }
    const std::string& parameter() const { return parameter_; }  // whose value is at fault; empty: none alone

private:
    std::string stage_, parameter_;
};

// "penalties", "top_k", "top_p", "temperature".
std::span<const std::string_view> default_chain();

// Sets a parameter of stage `name` in `spec`. A built-in stage that is missing is added where chains usually have it.
// Throws Error when `spec` lacks a stage that is not built in. Values are checked when a chain is made.
void set_parameter(ChainSpec& spec, std::string_view name, std::string_view parameter, ParameterValue value);

// Why a stage failed on a row.
struct StageFailure {
    std::string stage;
    std::string message;  // one sentence that names the stage
};

struct Decision {
    std::int32_t token = -1;
    float margin = 0.0f;  // best minus second-best score after noise; +inf without a second
    // Not null: token is -1 and the generation has to stop. Valid until the next call.
    const StageFailure* failure = nullptr;
    // Too few of the candidates may follow, so the row decides: decide_again(). token is -1.
    bool needs_row = false;
};

// What a host stage has cost and how often it failed, since the chain was made. `slow` is a sentence for the user,
// empty while the stage is fast.
struct StageReport {
    std::string stage;
    std::int64_t calls = 0;
    double total_ms = 0.0;  // of calls and of states that follow the text, with what the host does for them
    double worst_ms = 0.0;
    std::int64_t failures = 0;
    std::string last_failure;
    std::string slow;
    std::int64_t tokens = 0;       // that the chain has sampled meanwhile
    std::int64_t draft_calls = 0;  // the same for drafts of this chain
    double draft_ms = 0.0;
    bool hidden = false;  // from drafts, because its state cannot be copied
};

// A compiled plan and the lists that it refers to. A buffer that is reused stops allocating. Each row in flight needs
// its own.
class PlanBuffer {
public:
    kernels::SamplingPlan plan;
    // Of compile_prefix(): the plan's token is what decide() yields unless a stage that is left out drops it.
    bool guess = false;
    std::vector<kernels::TokenCount> counts[kernels::kMaxSamplingSteps];
};

struct ChainTrace;  // samplers/chain_trace.h
class ChainStages;  // samplers/chain_stages.h: stages and one set of states

// What a draft's stages do without: stages whose states cannot be copied; also host stages that only drop candidates;
// none, to verify: the host runs those without copies.
enum class Following : std::uint8_t { copies, without_masks, verify };

class Chain {
public:
    // `vocabulary` must outlive the chain. Only its ids are candidates; rows may be longer (padding).
    Chain(const ChainSpec& spec, const Vocabulary& vocabulary);
    ~Chain();
    Chain(Chain&&) noexcept;
    Chain& operator=(Chain&&) noexcept;

    // Starts a generation after `history`, which holds every token from index 0 on, the prompt included. Makes room for
    // `capacity` tokens. The last `begun` tokens of the history belong to the answer already: text that it is made to
    // begin with.
    void begin(std::uint64_t seed, std::uint64_t branch, std::span<const std::int32_t> history,
               std::size_t capacity = 0, std::size_t begun = 0);

    // Samples the token at index history().size() from a row of logits, which is modified in place. Changes no state:
    // the same row gives the same token again.
    Decision decide(std::span<float> logits);
    // The same where a backend has run the plan of compile_prefix(): from the candidates that it keeps. `ahead`: the
    // plan was that of a DraftChain.
    Decision decide(const kernels::Candidates& candidates, bool ahead = false);
    // The same from the row that the plan has run on, for a Decision that needs it.
    Decision decide_again(std::span<float> logits, bool ahead = false);
    // The token was emitted. For feedback stages it must be the one that the last decide() sampled.
    void accept(std::int32_t token);

    // Another chain of the same stages. Its states have accepted nothing.
    std::unique_ptr<Chain> duplicate() const;

    // What decide() does to the row, stage by stage.
    ChainTrace trace(std::span<float> logits);
    // Whether a stage learns how tokens were sampled: only a decide() for every token of the answer brings the chain to
    // a place within it. Otherwise accept() is enough.
    bool feedback() const;

    std::span<const std::int32_t> history() const;
    std::uint64_t seed() const;
    std::uint64_t branch() const;

    // Fills `buffer` with the plan for the next token and returns nullptr, or returns the name of the first host stage.
    // A backend that runs the plan yields what decide() yields, bit for bit.
    const char* compile(PlanBuffer& buffer) const;
    // Fills `buffer` with a plan that keeps candidates, for decide() to go on from: those that the first host stage
    // would get. Stages that judge tokens may stand before the cut: the plan leaves them out and keeps more candidates
    // than the cut does. False: there is no host stage, or one that transforms the whole vocabulary, or no cut.
    // Where all that is left out only drops candidates, the plan goes on without it and samples a guess.
    bool compile_prefix(PlanBuffer& buffer) const;
    // The name of the first host stage; nullptr when there is none, so that compile() always succeeds.
    const char* host_stage() const;

    // Whether a temperature of 0 makes the chain sample without noise.
    bool greedy() const;
    // Whether a stage may say what must come next.
    bool forces() const;
    // The stages in order, with the values in force.
    std::vector<StageSpec> spec() const;
    std::vector<StageReport> reports() const;
    // Stages that the draft does not see, because they cannot be cloned.
    std::vector<std::string> hidden_from_draft() const;

private:
    friend class DraftChain;
    std::unique_ptr<ChainStages> stages_;
};

// The chain as the draft sees it: in phase `propose`, with copies of the live states, which run ahead and are dropped.
// A stage that fails here is left out for that row: the draft then guesses worse, and the text stays the same.
class DraftChain {
public:
    DraftChain();
    ~DraftChain();
    DraftChain(DraftChain&&) noexcept;
    DraftChain& operator=(DraftChain&&) noexcept;

    // Begins a round: copies states, history and key of `live` and drops what was advanced before. Rebuilds itself when
    // `live` is another chain than last time.
    void start(const Chain& live);
    // As start(), but leaves out host stages that only drop candidates, as long as they seldom drop likely ones: a
    // draft would compute their masks at every token, and on a device wait for the host.
    void start_without_masks(const Chain& live);
    // As start(), for plans of the rows that verify a draft: stages whose states cannot be copied are host stages.
    void start_to_verify(const Chain& live);
    // The draft's token at the next index, from the draft's logits.
    kernels::SampledToken propose(std::span<float> logits);
    // The same from the candidates that the plan of compile_prefix() keeps, or, where they are too few (needs_row()),
    // from the row that the plan has run on.
    kernels::SampledToken propose(const kernels::Candidates& candidates);
    bool needs_row() const;
    kernels::SampledToken propose_again(std::span<float> logits);
    // Appends a drafted token.
    void advance(std::int32_t token);
    // As those of Chain, for the draft's next token.
    const char* compile(PlanBuffer& buffer) const;
    bool compile_prefix(PlanBuffer& buffer) const;
    const char* host_stage() const;
    // Sets `tokens` to what a stage says must come next, cut into tokens as the tokenizer does it; empty where nothing
    // is forced, or there is no tokenizer.
    void forced(std::vector<std::int32_t>& tokens) const;
    // Whether it has all stages of the chain that it follows.
    bool complete() const { return complete_; }

private:
    void follow(const Chain& live, Following following);

    std::unique_ptr<ChainStages> stages_;
    Following following_ = Following::copies;
    bool complete_ = false;
};

}  // namespace foresay::samplers
