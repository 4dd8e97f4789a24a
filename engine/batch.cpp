#include "engine/batch.h"

#include <algorithm>

#include "core/models/given_text.h"
#include "engine/engine_state.h"
#include "speculative/drafters/drafters.h"
#include "speculative/memory_estimate.h"

namespace foresay::engine {
namespace {

constexpr std::int64_t kDefaultContexts = 4;
// Rows of prompts in a forward between two of decode rows. A device takes little longer for hundreds of them than for a
// few; the host computes one after the other.
constexpr std::int32_t kDeviceRowsBeside = 512;
constexpr std::int32_t kHostRowsBeside = 64;

// Whole contexts that the cache has pages for.
std::int32_t contexts(const BatchOptions& options, const core::ContextOptions& context, const core::Model& target) {
    if (options.cache_tokens > 0) {
        const std::int64_t wanted = (options.cache_tokens + context.length - 1) / context.length;
        return static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted, 1, 1024));
    }
    kernels::Ops& ops = target.ops();
    const std::int64_t own = ops.free_memory();
    const std::int64_t memory = own >= 0 ? own : speculative::available_memory();
    const std::int32_t pages = (context.length + kernels::kPagePositions - 1) / kernels::kPagePositions;
    const std::int64_t bytes = std::max<std::int64_t>(1, ops.kv_bytes(target.kv_shape(), pages, context.kv_format));
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(memory / 2 / bytes, 1, kDefaultContexts));
}

}  // namespace

std::function<std::unique_ptr<speculative::Drafter>(std::int32_t)> Engine::State::lookup() const {
    for (const speculative::DrafterKind& kind : speculative::drafter_kinds()) {
        if (kind.needs_draft_model || std::ranges::find(config.sources, kind.name) == config.sources.end()) continue;
        return [make = kind.make](std::int32_t capacity) {
            return make({.context_length = capacity, .draft = {}, .draft_context = {}, .never_proposed = {}});
        };
    }
    return {};
}

speculative::BatchGenerator Engine::make_batch(const BatchOptions& options) const {
    const std::int32_t most = std::clamp(options.sequences, 1, 1024);
    core::ContextOptions context = state_->context_options(context_length());
    context.sequences = contexts(options, context, *state_->target);
    context.branches = std::max(0, most + std::max(0, options.kept_texts) - context.sequences);
    // A row for each text, and further ones for drafts.
    context.decode_rows = std::max(most + std::min(3 * most, 64), state_->options.decode_rows);
    speculative::BatchParts parts;
    parts.target = std::make_unique<core::Context>(state_->target, context);
    parts.most_sequences = most;
    // A device has a kernel for each class; the host computes both alike.
    parts.classes_agree = ops().free_memory() < 0;
    parts.short_given = core::short_given_tokens(ops());
    parts.reuse_prefixes = options.kept_texts > 0;
    parts.tokenizer = state_->tokenizer.get();
    parts.prefill_rows_beside = options.prefill_rows_beside > 0 ? options.prefill_rows_beside
                                : ops().asynchronous()          ? kDeviceRowsBeside
                                                                : kHostRowsBeside;
    if (options.speculate) parts.speculation = speculation();
    parts.make_drafter = state_->lookup();
    if (options.speculate && draft() != nullptr && has_source("draft")) {
        core::ContextOptions own =
            state_->context_options(std::min(context_length(), draft()->config().context_length));
        own.sequences = context.sequences;
        own.branches = std::max(0, most - own.sequences);
        own.decode_rows = std::max(2 * most, state_->options.decode_rows);
        parts.draft = std::make_unique<core::Context>(state_->draft, own);
        parts.never_proposed = state_->never_proposed;
    }
    return speculative::BatchGenerator(std::move(parts));
}

}  // namespace foresay::engine
