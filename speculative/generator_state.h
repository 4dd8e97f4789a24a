// speculative/generator_state.h: what a Generator is made of; shared by the files that implement it.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "samplers/chain.h"
#include "speculative/branch_cache.h"
#include "speculative/controller.h"
#include "speculative/device_sampling.h"
#include "speculative/draft_builder.h"
#include "speculative/drafters/forced_drafter.h"
#include "speculative/generator.h"
#include "speculative/text_stream.h"

namespace foresay::speculative {

struct Generator::State {
    GeneratorParts parts;
    BranchCache sequence;
    Controller controller;
    TextStream text;
    std::unique_ptr<Drafter> forced = make_forced_drafter();
    DraftBuilder builder;
    std::vector<kernels::TokenRef> rows;    // of a verification
    core::Context* token_source = nullptr;  // samples the open last token of a draft; null: drafts are never open
    DeviceSampling sampling;

    explicit State(GeneratorParts given)
        : parts(std::move(given)),
          sequence(*parts.target),
          controller(parts.now),
          text(parts.tokenizer),
          builder(parts.drafters, parts.now, forced.get()) {}

    core::Context& target() const { return *parts.target; }

    void truncate(std::int32_t length) {
        sequence.truncate(length);
        for (const auto& drafter : parts.drafters) drafter->rewind(length);
        forced->rewind(length);
    }

    // Whether anything is drafted.
    bool speculating() const {
        return parts.speculation.mode != core::SpeculationMode::off &&
               (!parts.drafters.empty() || parts.chain->forces());
    }
    // The source of entry i of the statistics.
    const Drafter* source(std::size_t i) const {
        return i < parts.drafters.size() ? parts.drafters[i].get() : forced.get();
    }
    // Lets the target verify a token that the draft model is still sampling, where both run on one backend.
    void take_open_drafts();
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
