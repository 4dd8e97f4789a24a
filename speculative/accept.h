// speculative/accept.h: accepts drafted tokens. The target's own chain samples from the verified rows, one after the
// other, and goes on only while its token equals the drafted one (law 3: the draft never decides).
//
// emit() decides after every token whether the text ends, so no token is emitted past the end.
// Cost:     one sampled token per emitted token; no allocation.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <span>

#include "core/models/context.h"
#include "samplers/chain.h"
#include "speculative/device_sampling.h"

namespace foresay::speculative {

enum class AcceptEnd : std::uint8_t {
    row,      // a token differed, or the rows are used up: the next round continues
    stop,     // an end token or a stop string
    failure,  // the chain sampled no token
    broken,   // the model's logits are not finite
    lost,     // RowSource::guesses: the candidates do not tell, and the row is gone; nothing was emitted
};

// Whether every logit is a finite number: NaN and infinities have all exponent bits set. Bad weights are noticed only
// here, because sampling compares logits, and every comparison with NaN is false.
inline bool all_finite(std::span<const float> logits) {
    constexpr std::uint32_t kExponent = 0x7f800000u;
    std::uint32_t worst = 0;
    for (const float logit : logits) worst = std::max(worst, std::bit_cast<std::uint32_t>(logit) & kExponent);
    return worst < kExponent;
}

struct AcceptOutcome {
    std::int32_t emitted = 0;
    std::int32_t accepted = 0;  // emitted tokens that were drafted
    AcceptEnd end = AcceptEnd::row;
    bool asked_row = false;  // the candidates did not tell, so that a row of logits was read, or would have been
    const samplers::StageFailure* failure = nullptr;
};

// Logit row `first` of the context's last forward belongs to the sequence's last token, row first + i to drafted[i -
// 1]. emit(token, was_drafted) receives each token and returns true when the text ends with it. At most drafted.size()
// + 1 tokens are emitted. `source`: what DeviceSampling::sample() returned for the same drafted tokens; guesses: the
// next forward has begun, else candidates. see(logits)
// receives each row before the chain changes it, where the host samples. `decided`: what decide_row() or decide_slot()
// has made of the first row, which is then the chain's last decision; null: nothing yet.
struct SeesNothing {
    void operator()(std::span<const float>) const {}
};
struct DecidedRow {
    bool finite = true;
    samplers::Decision decision;  // needs_row: the candidates do not tell, and the row is gone
    bool asked_row = false;       // as that of AcceptOutcome
};
template <class See = SeesNothing>
DecidedRow decide_row(samplers::Chain& chain, std::span<float> logits, See&& see = {}) {
    DecidedRow row{.finite = all_finite(logits)};
    if (!row.finite) return row;
    see(logits);
    row.decision = chain.decide(logits);
    return row;
}
// The same where the device has sampled into `slot` from the row of that number: its token, or what the chain makes of
// the candidates. `ahead`: by the plan of a DraftChain.
inline DecidedRow decide_slot(core::Context& context, samplers::Chain& chain, std::int32_t slot, RowSource source,
                              bool ahead) {
    const kernels::SampledToken sampled = context.ops().sampled(context.workspace(), slot);
    DecidedRow row{.finite = sampled.finite};
    if (source == RowSource::tokens) {
        row.decision = {sampled.token, sampled.margin, nullptr};
    } else if (row.finite) {
        row.decision = chain.decide(context.ops().candidates(context.workspace(), slot), ahead);
        row.asked_row = row.decision.needs_row;
        const bool gone = source == RowSource::guesses;
        if (row.asked_row && !gone) row.decision = chain.decide_again(context.logits(slot), ahead);
    }
    return row;
}
template <class Emit, class See = SeesNothing>
AcceptOutcome accept_tokens(core::Context& context, samplers::Chain& chain, std::span<const std::int32_t> drafted,
                            RowSource source, Emit&& emit, std::int32_t first = 0, See&& see = {},
                            const DecidedRow* decided = nullptr) {
    AcceptOutcome outcome;
    for (std::size_t row = 0; row <= drafted.size(); ++row) {
        const std::int32_t slot = first + static_cast<std::int32_t>(row);
        const DecidedRow here = row == 0 && decided != nullptr ? *decided
                                : source == RowSource::logits
                                    ? decide_row(chain, context.logits(slot), see)
                                    : decide_slot(context, chain, slot, source, !drafted.empty());
        const samplers::Decision& decision = here.decision;
        outcome.asked_row = outcome.asked_row || here.asked_row;
        if (!here.finite) {
            outcome.end = AcceptEnd::broken;
            return outcome;
        }
        if (decision.needs_row) {
            outcome.end = AcceptEnd::lost;
            return outcome;
        }
        if (decision.token < 0) {
            outcome.end = AcceptEnd::failure;
            outcome.failure = decision.failure;
            return outcome;
        }
        const bool agreed = row < drafted.size() && decision.token == drafted[row];
        chain.accept(decision.token);
        ++outcome.emitted;
        if (agreed) ++outcome.accepted;
        if (emit(decision.token, agreed)) {
            outcome.end = AcceptEnd::stop;
            return outcome;
        }
        if (!agreed) return outcome;
    }
    return outcome;
}

}  // namespace foresay::speculative
