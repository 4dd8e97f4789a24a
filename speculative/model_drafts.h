// speculative/model_drafts.h: the draft model for many texts: one forward drafts a token for each.
// drafters/model_drafter.h does it for one text.
//
// Each text has a sequence of the draft's cache, which is brought up to date when a draft is asked for. The draft uses
// the noise, the temperature and the masks of the text's own chain.
//
// Threads:  one caller at a time.
// Cost:     step() is one forward, and one more for a text whose prompt the draft model has not seen. No allocation
//           once the texts have grown.
// Errors:   none; where the draft's cache is full or too short, a text gets no token.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/models/context.h"
#include "samplers/chain.h"
#include "speculative/clock.h"
#include "speculative/cost_model.h"

namespace foresay::speculative {

// What belongs to one text.
struct DraftedText {
    core::SequenceId id = -1;        // of the draft's cache; -1: the draft model has seen nothing
    std::vector<std::int32_t> held;  // tokens in the cache
    std::size_t checked = 0;         // how many of them are known to be the text's
    std::size_t advanced = 0;        // tokens of the present draft that `chain` has seen
    samplers::DraftChain chain;
    samplers::PlanBuffer plan;
};

// One token for one text.
struct DraftStep {
    DraftedText* text = nullptr;
    std::span<const std::int32_t> tokens;  // the text so far
    std::span<const std::int32_t> draft;   // drafted after it, by whatever source
    const samplers::Chain* live = nullptr;
    // The result; token -1: there is none.
    kernels::SampledToken sampled;
};

class ModelDrafts {
public:
    // `never_proposed`, increasing: ids that mean another token to the draft than to the target, or none.
    ModelDrafts(std::unique_ptr<core::Context> context, std::vector<std::int32_t> never_proposed, Now now);

    // Times forwards of several widths, once and within a time budget. False: there is no room for them now.
    bool warm_up();
    // Milliseconds of a step for so many texts that are up to date.
    double step_ms(std::int32_t texts) const;
    // Milliseconds, roughly, until the draft model has seen `tokens` tokens of this text.
    double catch_up_ms(const DraftedText& text, std::size_t tokens) const;

    void step(std::span<DraftStep> steps);
    // The draft of the round before is done with.
    static void begin_round(DraftedText& text) { text.advanced = 0; }
    // Gives the text's pages back.
    void forget(DraftedText& text);

private:
    bool prepare(DraftStep& step);
    void sample(DraftStep& step, std::int32_t row, bool on_device);
    std::int32_t known(std::int32_t token) const;

    std::unique_ptr<core::Context> context_;
    std::vector<std::int32_t> never_proposed_;
    Now now_;
    CostModel costs_;
    bool warm_ = false;              // costs were measured
    std::vector<std::int32_t> ids_;  // scratch
    std::vector<kernels::TokenRef> refs_;
    std::vector<std::int32_t> last_rows_;
    std::vector<core::Segment> segments_;
    std::vector<DraftStep*> ready_;
    std::vector<kernels::SamplingPlan> plans_;
    std::vector<std::int32_t> slots_;
};

}  // namespace foresay::speculative
