// speculative/drafter.h: a source of drafted tokens.
//
// A drafter guesses; it never decides. Whatever it proposes, the emitted tokens are the same: a wrong guess costs time
// only. The generator asks for at most one run per round, verifies it, and reports what became of it.
//
// Life:     begin() once per generation, then propose()/observe() in turn; rewind() whenever the session forgets
//           tokens.
// Threads:  one caller at a time.
// Cost:     part of every round: must not allocate once warm.
// Errors:   none; a drafter that cannot propose returns an empty run.
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

// Decides, token by token, how long a run of one source becomes.
class RunGauge {
public:
    virtual ~RunGauge() = default;
    // The `count`-th token of the run has just been proposed with confidence `margin`. True: propose another one.
    virtual bool extend(std::int32_t count, float margin) = 0;
    // What extend() will say of the token that is being drawn now, before it is known. A drafter that runs apart from the
    // host may then start the next step, or leave the run open, instead of waiting.
    enum class Outlook : std::uint8_t { unknown, more, end };
    virtual Outlook outlook() { return Outlook::more; }
};

// What a drafter is asked.
struct DraftTask {
    std::span<const std::int32_t> tokens;      // the session so far, input and generated; the run continues it
    std::int32_t max_tokens = 0;               // hard limit of the run, with what it holds already
    const samplers::Chain* chain = nullptr;    // the target's chain in its present state, for noise, temperature, masks
    std::span<const std::int32_t> end_tokens;  // tokens that end the text: a run is cut behind the first of them
    RunGauge* gauge = nullptr;                 // null: exactly max_tokens
    bool may_stay_open = false;                // the run may end in a token that is not known yet
};

// A run and, per token, the drafter's margin (best minus second-best score), +inf when it does not know better.
struct DraftRun {
    std::vector<std::int32_t> tokens;
    std::vector<float> margins;
    std::int32_t open_slot =
        -1;  // not negative: there is one more token, which a draw of Drafter::drawer() leaves here
    void clear() {
        tokens.clear();
        margins.clear();
        open_slot = -1;
    }
};

// One token that costs nothing to name. `length`: how many tokens of the text speak for it.
struct Offer {
    std::int32_t token = -1;  // -1: none
    double chance = 0.0;      // that it is the target's
    std::int32_t length = 0;
};

class Drafter {
public:
    virtual ~Drafter() = default;
    virtual std::string_view name() const = 0;
    // True: a source that costs nothing and answers offer().
    virtual bool offers() const { return false; }
    // The token that follows `session` and, behind it, `run`.
    virtual Offer offer(std::span<const std::int32_t> session, std::span<const std::int32_t> run) {
        (void)session;
        (void)run;
        return {};
    }
    // Touches memory and takes its first measurements, before the first generation.
    virtual void warm_up(Now now) { (void)now; }
    // A generation starts: `tokens` are the session so far.
    virtual void begin(std::span<const std::int32_t> tokens) { (void)tokens; }
    // Continues `run`, which may hold tokens of another source, up to task.max_tokens tokens in all.
    virtual void propose(const DraftTask& task, DraftRun& run) = 0;
    // The session has forgotten everything from position `length` on.
    virtual void rewind(std::int32_t length) { (void)length; }
    // Whose draws the slots of open runs are; null: there are none.
    virtual core::Context* drawer() { return nullptr; }
    // Milliseconds of one step as measured by warm_up(), 0 when a run costs nothing.
    virtual double step_ms() const { return 0.0; }
};

}  // namespace foresay::speculative
