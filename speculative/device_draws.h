// speculative/device_draws.h: a chain's draws made where the logits are, for backends that run apart from the host: no row
// is copied, and all rows of a verification are drawn at once. Of a chain with stages that have to run on the host, the
// device runs what comes before them, and hands over the few candidates that they see.
//
// Law 3:    the plan of row i supposes that the tokens drafted before it are accepted; the walk uses it only if they were.
// Cost:     compiles one plan per row; no allocation once warm.
// Errors:   none; draw() says when the chain or the backend wants the host to draw.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/models/context.h"
#include "samplers/chain.h"

namespace foresay::speculative {

// Where the tokens of a verification are to be had.
enum class RowSource : std::uint8_t {
    logits,      // the host draws from the rows
    candidates,  // the host goes on from the candidates in the rows' slots
    tokens,      // they are in the rows' slots
};

class DeviceDraws {
public:
    // Draws from logit rows 0 .. drafted.size() of the context's last forward into slots of the same numbers, as far as
    // the device can.
    RowSource draw(core::Context& context, const samplers::Chain& chain, std::span<const std::int32_t> drafted) {
        const std::size_t rows = drafted.size() + 1;
        if (rows > kernels::kDrawSlots || !context.ops().asynchronous()) return RowSource::logits;
        const bool whole = chain.host_stage() == nullptr;
        ahead_.start(chain);
        if (!whole && !ahead_.complete()) return RowSource::logits;
        if (buffers_.empty()) {
            buffers_.resize(kernels::kDrawSlots);
            plans_.resize(kernels::kDrawSlots);
            for (std::int32_t slot = 0; slot < kernels::kDrawSlots; ++slot) slots_.push_back(slot);
        }
        for (std::size_t row = 0; row < rows; ++row) {
            if (!(whole ? ahead_.compile(buffers_[row]) == nullptr : ahead_.compile_head(buffers_[row]))) {
                return RowSource::logits;
            }
            if (row == 0) reserve(rows);
            plans_[row] = buffers_[row].plan;
            if (row < drafted.size()) ahead_.advance(drafted[row]);
        }
        context.ops().draw(context.activations(), std::span(plans_).first(rows), std::span(slots_).first(rows));
        return whole ? RowSource::tokens : RowSource::candidates;
    }

private:
    // Lists of counted tokens grow with the text: in all rows at once and by doubling, so that a run that is wider than
    // those before it finds room.
    void reserve(std::size_t rows) {
        for (std::size_t step = 0; step < kernels::kMaxDrawSteps; ++step) {
            const std::size_t size = buffers_[0].counts[step].size();
            if (size == 0 || size + rows <= buffers_.back().counts[step].capacity()) continue;
            // Not the first row's, which its plan already refers to.
            for (std::size_t row = 1; row < buffers_.size(); ++row) {
                buffers_[row].counts[step].reserve(2 * size + kernels::kDrawSlots);
            }
        }
    }

    samplers::DraftChain ahead_;
    std::vector<samplers::PlanBuffer> buffers_;
    std::vector<kernels::DrawPlan> plans_;
    std::vector<std::int32_t> slots_;
};

}  // namespace foresay::speculative
