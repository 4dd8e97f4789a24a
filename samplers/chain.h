// samplers/chain.h: an ordered list of stages that shapes a row of logits, and the draw from what leaves it.
//
// One live state walks the emitted tokens: begin() with the tokens so far, then decide() and accept() in turn. Nothing
// is ever rolled back. DraftChain is the same chain with states of its own, for shaping a draft ahead of the live
// state.
//
// State:    at begin() the state of every stage is a function of the token history alone (feedback stages start anew),
//           so a retried or repeated generation starts exactly where the first one did.
// Threads:  one caller at a time per Chain or DraftChain; compile() and DraftChain::start() only read the Chain.
// Cost:     no allocation per token once warm. See kernels/draw.h for the draw; penalties cost O(distinct tokens in
//           window).
// Errors:   the constructor throws Error (unknown stage or parameter, wrong type, out of range, a plugin that refuses).
//           decide() never throws: a stage that fails is named in the Decision, and only there.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/draw.h"
#include "samplers/stage.h"

namespace foresay::samplers {

// One stage as a configuration states it.
struct StageSpec {
    std::string name;
    Parameters parameters;                        // the others have their defaults
    std::shared_ptr<const StageFactory> factory;  // null: the built-in stage of that name
    // What to do when the stage breaks its contract. `stop` ends the generation with the failure; `skip` treats the row
    // as if the stage were not there, and counts it. The default is stop: skipping silently changes the text.
    enum class OnError : std::uint8_t { stop, skip } on_error = OnError::stop;
};

using ChainSpec = std::vector<StageSpec>;

// "penalties", "top_k", "top_p", "temperature".
std::span<const std::string_view> default_chain();

// Why a stage failed on a row.
struct StageFailure {
    std::string stage;
    std::string message;  // one sentence that names the stage
};

struct Decision {
    std::int32_t token = -1;
    float margin = 0.0f;  // best minus second-best score after noise; +inf without a second
    const StageFailure* failure =
        nullptr;  // not null: token is -1, the generation has to stop; valid until the next call
};

// What a stage has cost and how often it failed. `slow` is a sentence for the user, empty while the stage is quick.
struct StageReport {
    std::string stage;
    std::int64_t calls = 0;
    double total_ms = 0.0;
    double worst_ms = 0.0;
    std::int64_t failures = 0;
    std::string last_failure;
    std::string slow;
};

// Backing store of a compiled plan. Reused plan after plan, it stops allocating. One per row that is in flight.
class PlanBuffer {
public:
    kernels::DrawPlan plan;
    std::vector<kernels::TokenCount> counts[kernels::kMaxDrawSteps];
};

// Stages and one set of states. What Chain and DraftChain share.
class StageWalk;

class Chain {
public:
    // `vocabulary` must outlive the chain. Only its ids are candidates, however long the rows are.
    Chain(const ChainSpec& spec, const Vocabulary& vocabulary);
    ~Chain();
    Chain(Chain&&) noexcept;
    Chain& operator=(Chain&&) noexcept;

    // Starts a generation behind `history`, which holds every token from index 0 on, the prompt included. Makes room
    // for `capacity` tokens.
    void begin(std::uint64_t seed, std::uint64_t branch, std::span<const std::int32_t> history,
               std::size_t capacity = 0);

    // Draws the token at index history().size() from a row of logits, which is modified in place. Changes no state: the
    // same row decides the same again.
    Decision decide(std::span<float> logits);
    // The same where a backend has run compile_head(): from the candidates that its plan keeps.
    Decision decide(const kernels::Candidates& head);
    // The token was emitted. For feedback stages it must be the one that the last decide() drew.
    void accept(std::int32_t token);

    // Another chain of the same stages, with states of its own that have seen nothing yet.
    std::unique_ptr<Chain> duplicate() const;

    std::span<const std::int32_t> history() const;
    std::uint64_t seed() const;
    std::uint64_t branch() const;

    // Fills `buffer` with the plan for the next token and returns nullptr, or returns the name of the first stage that
    // has to run on the host. compile() and a backend's draw() yield what decide() yields, bit for bit.
    const char* compile(PlanBuffer& buffer) const;
    // Fills `buffer` with the plan of the stages before the first that has to run on the host, which keeps its candidates.
    // False: there is no such stage, or it sees the whole vocabulary.
    bool compile_head(PlanBuffer& buffer) const;
    // The name of the first stage that has to run on the host; nullptr when compile() always succeeds.
    const char* host_stage() const;

    // Whether a temperature of 0 makes the chain draw without noise.
    bool greedy() const;
    // The stages in order, with the values in force.
    std::vector<StageSpec> spec() const;
    std::vector<StageReport> reports() const;
    // Stages that the draft does not see, because they cannot be cloned.
    std::vector<std::string> hidden_from_draft() const;

private:
    friend class DraftChain;
    std::unique_ptr<StageWalk> walk_;
};

// The chain as the draft sees it: phase `propose`, copies of the live states that run ahead and are dropped.
//
// A stage that fails here is left out for that row: a draft may only cost speed.
class DraftChain {
public:
    DraftChain();
    ~DraftChain();
    DraftChain(DraftChain&&) noexcept;
    DraftChain& operator=(DraftChain&&) noexcept;

    // A round begins: states, history and key are those of `live`; what was advanced before is dropped. Rebuilds itself
    // when `live` is another chain than last time.
    void start(const Chain& live);
    // As start(), without the host stages that only drop candidates, as long as those that they drop are seldom likely
    // ones: for a draft that would otherwise wait for the host at every token.
    void start_without_masks(const Chain& live);
    // The draft's token at the next index, from the draft's logits.
    kernels::Drawn propose(std::span<float> logits);
    // The same from what compile_head() leaves of them.
    kernels::Drawn propose(const kernels::Candidates& head);
    // Appends a drafted token.
    void advance(std::int32_t token);
    // As Chain::compile(), for the draft's next token. Stages that must run on the host make it fail likewise.
    const char* compile(PlanBuffer& buffer) const;
    bool compile_head(PlanBuffer& buffer) const;
    // Whether it has all stages of the chain that it follows.
    bool complete() const { return complete_; }

private:
    void follow(const Chain& live, bool without_masks);

    std::unique_ptr<StageWalk> walk_;
    bool without_masks_ = false;
    bool complete_ = false;
};

}  // namespace foresay::samplers
