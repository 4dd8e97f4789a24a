// speculative/drafter.h: a source of drafted tokens.
//
// A drafter guesses; it never decides. Whatever it proposes, the emitted tokens are the same: a wrong guess costs time
// only. The generator asks for at most one draft per round and verifies it. The next task's tokens include what was
// accepted.
//
// Life:     begin() once per generation, then look_up() and propose(); rewind() whenever the sequence forgets tokens.
// Threads:  one caller at a time.
// Cost:     part of every round: must not allocate once warm.
// Errors:   none; a drafter that has nothing to propose adds nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "speculative/clock.h"

namespace foresay::core {
class Context;
}
namespace foresay::samplers {
class Chain;
}

namespace foresay::speculative {

// Decides, token by token, how many tokens a drafter proposes.
class DraftStopRule {
public:
    virtual ~DraftStopRule() = default;
    // The `count`-th token of the draft has just been proposed with confidence `margin`. True: propose another one.
    virtual bool keep_drafting(std::int32_t count, float margin) = 0;
    // What keep_drafting() will return for the token that is being sampled now, before that token is known. `more`: an
    // asynchronous drafter may start the next step without waiting for it. `end`: it may leave the draft open.
    // `unknown`: it has to wait for the token and ask keep_drafting().
    enum class Lookahead : std::uint8_t { unknown, more, end };
    virtual Lookahead lookahead() { return Lookahead::more; }
};

// A request to a drafter.
struct DraftTask {
    std::span<const std::int32_t> tokens;      // the sequence so far, input and generated; the draft continues it
    std::int32_t max_tokens = 0;               // hard limit of the draft, including what it already holds
    const samplers::Chain* chain = nullptr;    // the target's chain in its current state, for noise, temperature, masks
    std::span<const std::int32_t> end_tokens;  // tokens that end the text: a draft is cut after the first of them
    DraftStopRule* stop_rule = nullptr;        // null: exactly max_tokens
    bool may_stay_open = false;                // the draft may end in a token that is not known yet
};

// A draft and, per token, the drafter's confidence: a model's margin (best minus second-best score, +inf without a
// second), a lookup's length of the match.
struct DraftedTokens {
    std::vector<std::int32_t> tokens;
    std::vector<float> margins;
    // Not negative: there is one more token, which is still being sampled into this slot of Drafter::token_source().
    std::int32_t open_slot = -1;
    void clear() {
        tokens.clear();
        margins.clear();
        open_slot = -1;
    }
};

// One token that a lookup found.
struct Proposal {
    std::int32_t token = -1;  // -1: none
    double chance = 0.0;      // that it is the target's
    std::int32_t length = 0;  // of the match: how many tokens before it are equal
};

class Drafter {
public:
    virtual ~Drafter() = default;
    virtual std::string_view name() const = 0;
    // True: proposes from tokens seen before, costs next to nothing and implements look_up(). A generator uses any
    // number of lookups and at most one other drafter.
    virtual bool is_lookup() const { return false; }
    // A round of drafting begins after the history of `live`, the target's chain. Only for lookups.
    virtual void begin_round(const samplers::Chain& live) { (void)live; }
    // The token that follows `sequence` and then `draft`.
    virtual Proposal look_up(std::span<const std::int32_t> sequence, std::span<const std::int32_t> draft) {
        (void)sequence;
        (void)draft;
        return {};
    }
    // Touches memory and takes its first measurements, before the first generation.
    virtual void warm_up(Now now) { (void)now; }
    // A generation starts with the sequence `tokens`.
    virtual void begin(std::span<const std::int32_t> tokens) { (void)tokens; }
    // Continues `draft`, which may hold tokens of another source, up to task.max_tokens tokens in all.
    virtual void propose(const DraftTask& task, DraftedTokens& draft) = 0;
    // The sequence has been cut to its first `length` tokens.
    virtual void rewind(std::int32_t length) { (void)length; }
    // Drops all that it holds of texts: a later one finds nothing of them.
    virtual void forget() { rewind(0); }
    // The context whose token slots hold the last tokens of open drafts; null: drafts are never open.
    virtual core::Context* token_source() { return nullptr; }
    // Milliseconds of one step as measured by warm_up(), 0 when a step costs nothing.
    virtual double step_ms() const { return 0.0; }
};

}  // namespace foresay::speculative
