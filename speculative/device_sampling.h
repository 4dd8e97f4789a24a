// speculative/device_sampling.h: runs the chain on the device, for backends that are asynchronous to the host. No
// logits are copied, and all rows of a verification are sampled at once. If the chain has host stages, the device runs
// the stages before them and hands over the few candidates that the host stages see. Where these only drop candidates,
// the device samples without them as well: a guess, from which the next forward may start before the host has decided.
//
// On a host backend the chain samples the rows itself, one after the other. Rows after a disagreement are then never
// sampled, and there is nothing to wait for.
//
// Law 3:    the plan of row i assumes that the tokens drafted before it are accepted. It is used only if they are.
// Cost:     compiles one plan per row; no allocation once warm.
// Errors:   none; sample() returns RowSource::logits when the host has to sample.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/models/context.h"
#include "samplers/chain.h"

namespace foresay::speculative {

// Where the tokens of verified rows come from.
enum class RowSource : std::uint8_t {
    logits,      // the host samples from the rows
    candidates,  // the host continues with the candidates in the rows' token slots
    guesses,     // likewise, and the tokens there are likely to be what it chooses
    tokens,      // they are in the rows' token slots
};

class DeviceSampling {
public:
    // Samples from logit rows 0 .. drafted.size() of the context's last forward into the slots of the same numbers, as
    // far as the device can.
    RowSource sample(core::Context& context, const samplers::Chain& chain, std::span<const std::int32_t> drafted) {
        const std::size_t rows = drafted.size() + 1;
        if (rows > kernels::kTokenSlots || !context.ops().asynchronous()) return RowSource::logits;
        if (drafted.empty()) return sample_one(context, chain);
        ahead_.start_to_verify(chain);
        if (!ahead_.complete()) return RowSource::logits;
        const bool whole = ahead_.host_stage() == nullptr;
        make_buffers();
        for (std::size_t row = 0; row < rows; ++row) {
            if (!(whole ? ahead_.compile(buffers_[row]) == nullptr : ahead_.compile_prefix(buffers_[row]))) {
                return RowSource::logits;
            }
            if (row == 0) reserve(rows);
            plans_[row] = buffers_[row].plan;
            if (row < drafted.size()) ahead_.advance(drafted[row]);
        }
        context.ops().sample(context.workspace(), std::span(plans_).first(rows), std::span(slots_).first(rows));
        return whole ? RowSource::tokens : RowSource::candidates;
    }

private:
    // A row without a draft, by the live states.
    RowSource sample_one(core::Context& context, const samplers::Chain& chain) {
        const bool whole = chain.host_stage() == nullptr;
        make_buffers();
        samplers::PlanBuffer& buffer = buffers_[0];
        const auto compile = [&] { return whole ? chain.compile(buffer) == nullptr : chain.compile_prefix(buffer); };
        if (!compile()) return RowSource::logits;
        context.ops().sample(context.workspace(), {&buffer.plan, 1}, std::span(slots_).first(1));
        return whole ? RowSource::tokens : buffer.guess ? RowSource::guesses : RowSource::candidates;
    }

    void make_buffers() {
        if (!buffers_.empty()) return;
        buffers_.resize(kernels::kTokenSlots);
        plans_.resize(kernels::kTokenSlots);
        for (std::int32_t slot = 0; slot < kernels::kTokenSlots; ++slot) slots_.push_back(slot);
    }

    // Lists of counted tokens grow with the text. Makes room in all rows at once and by doubling, so that a draft
    // longer than those before it allocates nothing.
    void reserve(std::size_t rows) {
        for (std::size_t step = 0; step < kernels::kMaxSamplingSteps; ++step) {
            const std::size_t size = buffers_[0].counts[step].size();
            if (size == 0 || size + rows <= buffers_.back().counts[step].capacity()) continue;
            // Not in the first row: its plan already borrows the list.
            for (std::size_t row = 1; row < buffers_.size(); ++row) {
                buffers_[row].counts[step].reserve(2 * size + kernels::kTokenSlots);
            }
        }
    }

    samplers::DraftChain ahead_;
    std::vector<samplers::PlanBuffer> buffers_;
    std::vector<kernels::SamplingPlan> plans_;
    std::vector<std::int32_t> slots_;
};

}  // namespace foresay::speculative
