// speculative/generator_state.h: what a Generator is made of; shared by the files that implement it.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "samplers/chain.h"
#include "speculative/batch_generator.h"
#include "speculative/branch_cache.h"
#include "speculative/controller.h"
#include "speculative/device_sampling.h"
#include "speculative/draft_builder.h"
#include "speculative/drafters/forced_drafter.h"
#include "speculative/emission.h"
#include "speculative/generator.h"
#include "speculative/prediction.h"

namespace foresay::speculative {

struct Generator::State {
    GeneratorParts parts;
    BranchCache sequence;
    Controller controller;
    Emission answer;
    std::unique_ptr<Drafter> forced = make_forced_drafter();
    DraftBuilder builder;
    PredictionLookup prediction;
    std::vector<kernels::TokenRef> rows;    // of a verification
    core::Context* token_source = nullptr;  // samples the open last token of a draft; null: drafts are never open
    DeviceSampling sampling;
    std::unique_ptr<BatchGenerator> side_by_side;  // writes several answers; made when the first are wanted

    explicit State(GeneratorParts given)
        : parts(std::move(given)),
          sequence(*parts.target),
          controller(parts.now),
          answer(parts.tokenizer, parts.now),
          builder(parts.drafters, parts.now, forced.get()) {
        builder.add(prediction);
    }

    core::Context& target() const { return *parts.target; }

    void truncate(std::int32_t length) {
        sequence.truncate(length);
        for (const auto& drafter : parts.drafters) drafter->rewind(length);
        forced->rewind(length);
    }

    // Whether anything is drafted.
    bool speculating() const {
        return parts.speculation.mode != core::SpeculationMode::off &&
               (!parts.drafters.empty() || prediction.active() || parts.chain->forces());
    }
    // The place of a source in the statistics: drafters, the prediction if there is one, what is forced.
    std::size_t place_of(const Drafter* source) const {
        std::size_t place = 0;
        while (place < parts.drafters.size() && parts.drafters[place].get() != source) ++place;
        if (source == forced.get() && prediction.active()) ++place;
        return place;
    }
    // Lets the target verify a token that the draft model is still sampling, where both run on one backend.
    void take_open_drafts();
    BatchGenerator& batch();
    std::vector<GenerateResult> answer_side_by_side(const GenerateRequest& request,
                                                    std::span<const std::uint64_t> branches, std::size_t most,
                                                    const BranchCallback& callback);
    // Measures costs, once, before the first token.
    void warm_up();
    // Throws Error when the sequence followed by `input` cannot be a prompt: too long, empty, or with ids that do not
    // exist.
    void check_input(std::span<const std::int32_t> input) const;
    // Throws the error for a model whose logits are not finite.
    [[noreturn]] void fail_broken() const;
};

}  // namespace foresay::speculative
