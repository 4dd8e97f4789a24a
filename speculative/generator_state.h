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
#include "speculative/generator.h"
#include "speculative/prediction.h"
#include "speculative/text_stream.h"

namespace foresay::speculative {

struct Generator::State {
    GeneratorParts parts;
    BranchCache sequence;
    Controller controller;
    TextStream text;
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
          text(parts.tokenizer),
          builder(parts.drafters, parts.now) {
        builder.add(prediction);
    }

    core::Context& target() const { return *parts.target; }

    void truncate(std::int32_t length) {
        sequence.truncate(length);
        for (const auto& drafter : parts.drafters) drafter->rewind(length);
    }

    // Whether anything is drafted.
    bool speculating() const {
        return parts.speculation.mode != core::SpeculationMode::off && (!parts.drafters.empty() || prediction.active());
    }
    // The i-th source of the statistics: a drafter or, last, the prediction.
    const Drafter* source(std::size_t i) const {
        return i < parts.drafters.size() ? parts.drafters[i].get() : &prediction;
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
    bool is_end(std::int32_t token) const {
        return std::ranges::find(parts.end_tokens, token) != parts.end_tokens.end();
    }
};

}  // namespace foresay::speculative
