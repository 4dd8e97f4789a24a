// speculative/text_drafts.h: drafts for a text that is alone, as that of a Generator: by drafters of its own, as many
// tokens as the controller finds worthwhile. model_drafts.h and row_budget.h draft for texts that share a forward.
//
// What is known of costs and acceptance stays from one text to the next.
//
// Threads:  one caller at a time.
// Cost:     what the drafters take; allocates when a text begins, and nothing in a round.
// Errors:   the constructor throws Error for drafters that cannot work together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/models/context.h"
#include "samplers/chain.h"
#include "speculative/controller.h"
#include "speculative/draft_builder.h"
#include "speculative/generator.h"
#include "speculative/prediction.h"

namespace foresay::speculative {

// A sequence of the target's cache, after which forwards are timed. It stays as it is.
struct TimedPlace {
    core::SequenceId id = 0;
    std::function<void(std::int32_t rows)> make_room;  // so that it can grow by as many
};

class TextDrafts {
public:
    // `target`, which verifies the drafts, must outlive it.
    TextDrafts(std::vector<std::unique_ptr<Drafter>> drafters, core::Context& target, const SpeculationOptions& options,
               Now now);

    const SpeculationOptions& options() const { return options_; }
    void set_options(const SpeculationOptions& options) { options_ = options; }
    // The text has been cut to its first `length` tokens.
    void rewind(std::int32_t length);
    // Later texts find nothing of those before.
    void forget();
    // Measures costs, once, where there will be drafts that are to pay. `forces`: a chain says what comes next.
    void warm_up(const TimedPlace& place, bool forces);
    // A text begins to grow after `tokens`, by `room` tokens at most. `prediction`: what the caller expects of them.
    void begin(std::span<const std::int32_t> tokens, const TimedPlace& place, const samplers::Chain& chain,
               std::span<const std::int32_t> prediction, std::int32_t room);
    // Whether anything is drafted for it.
    bool active() const { return active_; }
    // Its mode and sources, with all counts at 0.
    SpeculationStatistics statistics() const;

    // What a round drafts for.
    struct Text {
        std::span<const std::int32_t> tokens;
        const samplers::Chain* chain = nullptr;
        std::span<const std::int32_t> end_tokens;
        std::int32_t room = 0;  // tokens that it may still have
    };
    // A round begins: drafts for it. `ahead`: where nothing is drafted, the next forward may begin before the token of
    // this one is known to the host.
    void draft(const Text& text, bool ahead);
    // Before that token is known: whether the next round is one without a draft. If so, it has begun.
    bool rests(const Text& text);
    // The draft, as far as it is worth verifying, and the place of a token's source in the statistics.
    std::span<const std::int32_t> tokens() const { return builder_.tokens().first(static_cast<std::size_t>(count_)); }
    std::size_t source(std::int32_t index) const;
    // The slot of one more token, which is still being sampled; negative: there is none. It joins tokens() with
    // close(), unless the chain ruled out every token, and the forward that verifies it may begin before that.
    std::int32_t open() const { return verifies_open_ ? builder_.open() : -1; }
    // False: no token was being sampled.
    bool close();
    double draft_ms() const { return builder_.draft_ms(); }  // of this round
    // What came of a round: as Controller::observe().
    void observe(std::int32_t accepted, std::int32_t emitted, double verify_ms, double round_ms, double emit_ms);

private:
    bool automatic() const { return options_.mode == core::SpeculationMode::automatic; }
    bool drafts_with(bool forces) const;
    DraftTask task(const Text& text) const;
    void cut_unknown();

    std::vector<std::unique_ptr<Drafter>> drafters_;
    core::Context& target_;
    SpeculationOptions options_;
    Now now_;
    std::unique_ptr<Drafter> forced_;
    PredictionLookup prediction_;
    DraftBuilder builder_;
    Controller controller_;
    core::Context* token_source_ = nullptr;  // samples the open last token of a draft; null: drafts are never open
    bool active_ = false;
    bool forces_ = false;         // the text's chain may say what comes next
    bool resting_ = false;        // nothing is drafted in this round, and the next may begin ahead
    std::int32_t count_ = 0;      // drafted tokens that are verified
    bool verifies_open_ = false;  // and the open one
};

}  // namespace foresay::speculative
