// speculative/device_sampling.h: runs chains on the device, for backends that are asynchronous to the host: rows of one
// sequence or of several, all in one call. No logits are copied. If a chain has host stages, the device runs the stages
// before them and hands over the few candidates that the host stages see. Where these only drop candidates, the device
// samples without them as well: a guess, from which the next forward may start before the host has decided.
//
// On a host backend every chain samples its own rows, one after the other. Rows after a disagreement are then never
// sampled, and there is nothing to wait for.
//
// Law 3:    the plan of a drafted row assumes that the tokens drafted before it are accepted. It is used only if they
//           are.
// Threads:  one caller at a time.
// Cost:     compiles one plan per row; no allocation once warm.
// Errors:   none; add() returns RowSource::logits when the host has to sample.
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
    // Whether the device can run `chain`, or the part of it before its first host stage.
    static bool runs_on(const core::Context& context, const samplers::Chain& chain) {
        samplers::PlanBuffer buffer;
        return context.ops().asynchronous() && (chain.compile(buffer) == nullptr || chain.compile_prefix(buffer));
    }

    void begin() { rows_ = 0; }
    // The next drafted.size() + 1 logit rows are those of `live` and of the tokens drafted after it; `ahead` is its
    // draft chain. Once it has returned RowSource::logits, all later rows are the host's.
    RowSource add(const samplers::Chain& live, samplers::DraftChain& ahead, std::span<const std::int32_t> drafted) {
        const std::size_t rows = drafted.size() + 1;
        if (rows_ + rows > kernels::kTokenSlots) return RowSource::logits;
        if (buffers_.empty()) {
            buffers_.resize(kernels::kTokenSlots);
            plans_.resize(kernels::kTokenSlots);
            for (std::int32_t slot = 0; slot < kernels::kTokenSlots; ++slot) slots_.push_back(slot);
        }
        if (!drafted.empty()) {
            ahead.start_to_verify(live);
            if (!ahead.complete()) return RowSource::logits;
        }
        const bool whole = (drafted.empty() ? live.host_stage() : ahead.host_stage()) == nullptr;
        for (std::size_t row = 0; row < rows; ++row) {
            samplers::PlanBuffer& buffer = buffers_[rows_ + row];
            const bool compiled = drafted.empty() ? compile(live, buffer, whole) : compile(ahead, buffer, whole);
            if (!compiled) return RowSource::logits;
            if (row == 0) reserve(rows);
            plans_[rows_ + row] = buffer.plan;
            if (row < drafted.size()) ahead.advance(drafted[row]);
        }
        rows_ += rows;
        if (whole) return RowSource::tokens;
        return buffers_[rows_ - 1].guess ? RowSource::guesses : RowSource::candidates;
    }
    // Samples the rows that were added. Row i of the context's last forward goes to slot i.
    void start(core::Context& context) {
        if (rows_ == 0) return;
        context.ops().sample(context.workspace(), std::span(plans_).first(rows_), std::span(slots_).first(rows_));
    }
    bool empty() const { return rows_ == 0; }

private:
    template <class Chain>
    static bool compile(const Chain& chain, samplers::PlanBuffer& buffer, bool whole) {
        return whole ? chain.compile(buffer) == nullptr : chain.compile_prefix(buffer);
    }

    // Lists of counted tokens grow with the text. The first of several rows was compiled: makes room in all after it at
    // once and by doubling, so that a draft longer than those before it allocates nothing.
    void reserve(std::size_t rows) {
        if (rows == 1) return;
        for (std::size_t step = 0; step < kernels::kMaxSamplingSteps; ++step) {
            const std::size_t size = buffers_[rows_].counts[step].size();
            if (size == 0 || size + rows <= buffers_.back().counts[step].capacity()) continue;
            // Not in the first row: its plan already borrows the list.
            for (std::size_t row = rows_ + 1; row < buffers_.size(); ++row) {
                buffers_[row].counts[step].reserve(2 * size + kernels::kTokenSlots);
            }
        }
    }

    std::size_t rows_ = 0;
    std::vector<samplers::PlanBuffer> buffers_;
    std::vector<kernels::SamplingPlan> plans_;
    std::vector<std::int32_t> slots_;
};

}  // namespace foresay::speculative
