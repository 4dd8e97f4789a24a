// speculative/model_drafts.h: the draft model for many texts: one forward drafts a token for each.
// drafters/model_drafter.h does it for one text.
//
// Each text has a sequence of the draft's cache, which is brought up to date when a draft is asked for. It begins with
// what other texts have there, those that run and those that are kept (prefix_cache.h). The draft uses the noise, the
// temperature and the masks of the text's own chain.
//
// Threads:  one caller at a time.
// Cost:     step() is one forward, and more for a text whose prompt the draft model has not seen. No allocation once
//           the texts have grown.
// Errors:   none; where the draft's cache is too short, or full of texts that run, a text gets no token.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/models/context.h"
#include "samplers/chain.h"
#include "speculative/clock.h"
#include "speculative/cost_model.h"
#include "speculative/prefix_cache.h"

namespace foresay::speculative {

// What belongs to one text.
struct DraftedText {
    core::SequenceId id = -1;        // of the draft's cache; -1: the draft model has seen nothing
    std::vector<std::int32_t> held;  // tokens in the cache
    std::size_t checked = 0;         // how many of them are known to be the text's
    std::size_t advanced = 0;        // tokens of the present draft that `chain` has seen
    bool drafted = false;            // it has had a token of the draft model
    double owed_ms = 0.0;            // what reading the text took, as far as no draft has paid for it
    samplers::DraftChain chain;
    samplers::PlanBuffer plan;
};

// One token for one text.
struct DraftStep {
    DraftedText* text = nullptr;
    std::span<const std::int32_t> tokens;  // the text so far
    std::span<const std::int32_t> draft;   // drafted after it, by whatever source
    const samplers::Chain* live = nullptr;
    std::optional<std::string_view> salt;  // texts of one salt share beginnings; none: it shares nothing
    // The result; token -1: there is none.
    kernels::SampledToken sampled;
};

class ModelDrafts {
public:
    // `never_proposed`, increasing: ids that mean another token to the draft than to the target, or none. `kept`, which
    // must outlive it, gives pages up when those that run need them.
    ModelDrafts(std::unique_ptr<core::Context> context, std::vector<std::int32_t> never_proposed, Now now,
                PrefixCache& kept);

    // Times forwards of several widths, alone and after one of `target`, once and within a time budget. False: there is
    // no room for them now.
    bool warm_up(core::Context& target);
    // Until a step has shown it: milliseconds that the host takes to sample a token.
    void expect_sampling(double ms) { expected_sample_ms_ = ms; }
    // Milliseconds of a step for so many texts that are up to date, after another step.
    double step_ms(std::int32_t texts) const;
    // The same of the round's next step: the first one comes after a forward of the target.
    double next_step_ms(std::int32_t texts) const { return step_ms(texts) + (stepped_ ? 0.0 : switch_ms_); }
    // Milliseconds, roughly, until the draft model has seen all but one of the `tokens` tokens of this text.
    double catch_up_ms(const DraftedText& text, std::size_t tokens) const;
    // Whether those join the next step, because they are few.
    static bool joins_step(const DraftedText& text, std::size_t tokens);

    // A text begins, or comes back: it takes what is known of `key`, of texts that are kept, of pages that were
    // stored, or of `other`, which runs.
    void open(DraftedText& text, const PrefixKey& key, PrefixCache::Found other);
    void step(std::span<DraftStep> steps);
    // Before the steps of a round: in all of them, at most so many tokens that texts lack are evaluated before a text
    // can be drafted for. A text that lacks more gets no token yet. So texts that decode do not wait for a long prompt.
    void begin_round(std::int32_t catch_up_rows) {
        catch_up_left_ = static_cast<std::size_t>(std::max(catch_up_rows, 0));
        stepped_ = false;
        steps_ms_ = 0.0;
        reading_ms_ = 0.0;
    }
    // Milliseconds that the steps of this round usually take, and that reading texts has taken in it.
    double steps_ms() const { return steps_ms_; }
    double reading_ms() const { return reading_ms_; }
    // The draft of the round before is done with.
    static void begin_round(DraftedText& text) { text.advanced = 0; }
    // Takes the text's sequence from it: it holds what it has of `tokens`, and nothing else; -1: it has nothing.
    core::SequenceId take(DraftedText& text, std::span<const std::int32_t> tokens);

    // Since it was made.
    struct Counters {
        std::int64_t rows = 0;             // evaluated for texts
        std::int64_t cached_tokens = 0;    // not evaluated, because another text had them, or had stored them
        std::int64_t restored_tokens = 0;  // of those, the ones that were stored
    };
    const Counters& counters() const { return counters_; }
    core::KvCache& cache() { return context_->cache(); }
    kernels::Ops& ops() { return context_->ops(); }

private:
    bool prepare(std::span<DraftStep> steps, std::size_t index);
    static bool waits_for(const DraftStep& step, std::span<const DraftStep> earlier);
    bool share(DraftStep& step, std::span<const DraftStep> earlier);
    void make_room(core::SequenceId sequence, std::int32_t rows);
    void holds(DraftedText& text, core::SequenceId id, std::span<const std::int32_t> tokens);
    void sample(DraftStep& step, std::int32_t row, bool on_device);
    std::int32_t known(std::int32_t token) const;

    std::unique_ptr<core::Context> context_;
    std::vector<std::int32_t> never_proposed_;
    Now now_;
    PrefixCache& kept_;
    Counters counters_;
    CostModel costs_;
    bool warm_ = false;        // costs were measured
    double switch_ms_ = 0.0;   // what a step takes longer after a forward of the target
    double sample_ms_ = -1.0;  // of a token, on the host; negative: not known
    double expected_sample_ms_ = 0.0;
    bool stepped_ = false;  // in this round, as the two below
    double steps_ms_ = 0.0;
    double reading_ms_ = 0.0;
    std::size_t catch_up_left_ = std::numeric_limits<std::size_t>::max();
    std::vector<std::int32_t> ids_;  // scratch
    std::vector<kernels::TokenRef> refs_;
    std::vector<std::int32_t> last_rows_;
    std::vector<core::Segment> segments_;
    std::vector<DraftStep*> ready_;
    std::vector<kernels::SamplingPlan> plans_;
    std::vector<std::int32_t> slots_;
};

}  // namespace foresay::speculative
