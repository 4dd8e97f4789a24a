#include "engine/batch.h"

#include <algorithm>

#include "engine/engine_state.h"

namespace foresay::engine {

speculative::BatchGenerator Engine::make_batch(const BatchOptions& options) const {
    core::ContextOptions context = state_->context_options(context_length());
    context.sequences = std::max(1, options.sequences);
    context.decode_rows = std::max(context.sequences, state_->options.decode_rows);
    speculative::BatchParts parts;
    parts.target = std::make_unique<core::Context>(state_->target, context);
    parts.tokenizer = state_->tokenizer.get();
    parts.prefill_rows_beside = options.prefill_rows_beside;
    return speculative::BatchGenerator(std::move(parts));
}

}  // namespace foresay::engine
