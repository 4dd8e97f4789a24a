#include "engine/batch.h"

#include <algorithm>
#include <limits>
#include <mutex>

#include "core/cache/page_store.h"
#include "core/models/given_text.h"
#include "engine/engine_state.h"
#include "kernels/divided_ops.h"
#include "kernels/split_ops.h"
#include "speculative/drafters/drafters.h"
#include "speculative/memory_estimate.h"

namespace foresay::engine {
namespace {

// What the cache holds when nothing is said: so many positions for each sequence, but four contexts at least.
constexpr std::int64_t kDefaultPositions = 4096;
constexpr std::int64_t kLeastContexts = 4;
// Of a batch of one text: itself, and as much of texts before it.
constexpr std::int32_t kContextsOfOne = 2;
// Rows of prompts in a forward between two of decode rows. A device takes little longer for hundreds of them than for a
// few; the host computes one after the other.
constexpr std::int32_t kDeviceRowsBeside = 512;
constexpr std::int32_t kHostRowsBeside = 64;

}  // namespace

std::int32_t wanted_contexts(std::int32_t sequences, std::int32_t context_length) {
    const std::int64_t each = std::min<std::int64_t>(context_length, kDefaultPositions);
    const std::int64_t wanted = std::max<std::int64_t>(sequences, 1) * each / context_length;
    return static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted, kLeastContexts, 1024));
}

std::int32_t batch_decode_rows(std::int32_t sequences, std::int32_t least) {
    return std::max(sequences + std::min(3 * sequences, 64), least);
}

std::int64_t Engine::State::contexts_with_room(const core::ContextOptions& context, bool with_draft) const {
    if (list == nullptr && ranks == nullptr) {
        const std::int64_t own = ops->free_memory();
        const auto bytes_of = [&](const kernels::KvShape& shape, std::int32_t length) {
            const std::int32_t pages = core::pages_for(length);
            return ops->kv_bytes(shape, pages, context.kv_format) +
                   ops->expanded_kv_bytes(shape, pages, context.kv_format);
        };
        std::int64_t each = bytes_of(target->kv_shape(), context.length);
        if (with_draft) each += bytes_of(draft->kv_shape(), draft_context());
        return (own >= 0 ? own : speculative::available_memory()) / 2 / std::max<std::int64_t>(1, each);
    }
    // Each device has the keys and values of its own layers or heads. place_layers() and place_rows() have left room
    // for some contexts.
    const kernels::ListOps& all = list != nullptr ? static_cast<const kernels::ListOps&>(*list) : *ranks;
    const auto kv_bytes_on = [&](std::size_t d, const kernels::KvShape& shape, std::int32_t length) {
        const std::int32_t pages = core::pages_for(length);
        return all.kv_bytes_on(d, shape, pages, context.kv_format) +
               all.expanded_kv_bytes_on(d, shape, pages, context.kv_format);
    };
    const std::int64_t placed = placed_contexts;
    std::int64_t least = std::numeric_limits<std::int64_t>::max(), on_host = 0;
    for (std::size_t d = 0; d < all.size(); ++d) {
        std::int64_t each = kv_bytes_on(d, target->kv_shape(), context.length);
        if (with_draft) each += kv_bytes_on(d, draft->kv_shape(), draft_context());
        if (each == 0) continue;
        const std::int64_t own = list != nullptr ? list->device(d).free_memory() : ranks->rank(d).free_memory();
        if (own < 0) on_host += each;
        if (own >= 0) least = std::min(least, std::max(placed, own / 2 / each));
        if (allowed_bytes(config, d)) {
            const std::int64_t left = placement[d].memory - placement[d].bytes;
            least = std::min(least, placed + std::max<std::int64_t>(0, left) / each);
        }
    }
    if (on_host > 0) least = std::min(least, std::max(placed, speculative::available_memory() / 2 / on_host));
    return least;
}

std::function<std::unique_ptr<speculative::Drafter>(std::int32_t)> Engine::State::lookup() const {
    for (const speculative::DrafterKind& kind : speculative::drafter_kinds()) {
        if (kind.needs_draft_model || !has_source(kind.name)) continue;
        return [make = kind.make](std::int32_t capacity) {
            return make({.context_length = capacity, .draft = {}, .draft_context = {}, .never_proposed = {}});
        };
    }
    return {};
}

// Where pages of target and draft go that leave their caches. Both have room for as many tokens in host
// memory.
void Engine::State::add_page_stores(speculative::BatchParts& parts, const Engine& engine) const {
    if (config.cache_host_mib == 0 && config.cache_folder.empty()) return;
    const auto bytes_of = [&](const core::Context* context) {
        if (context == nullptr) return std::int64_t{0};
        return ops->kv_bytes(context->model().kv_shape(), 1, context->options().kv_format);
    };
    const std::int64_t target_bytes = bytes_of(parts.target.get()), draft_bytes = bytes_of(parts.draft.get());
    const std::int64_t pages = (config.cache_host_mib << 20) / (target_bytes + draft_bytes);
    // A folder that cannot be written is one folder for both.
    struct Told {
        std::mutex mutex;
        std::string last;
    };
    const auto notice = [observer = options.observer, told = std::make_shared<Told>()](const std::string& sentence) {
        const std::scoped_lock lock(told->mutex);
        if (observer && told->last != sentence) observer->notice(Notice::pages, told->last = sentence);
    };
    const auto make = [&](std::int64_t page_bytes, const std::string& (Engine::*fingerprint)() const) {
        core::PageTiersOptions tiers;
        tiers.page_bytes = page_bytes;
        tiers.host_bytes = pages * page_bytes;
        tiers.folder = config.cache_folder;
        tiers.disk_bytes = config.cache_disk_mib << 20;
        if (!tiers.folder.empty()) tiers.fingerprint = (engine.*fingerprint)();
        tiers.notice = notice;
        return std::make_shared<core::PageTiers>(*ops, std::move(tiers));
    };
    parts.pages = make(target_bytes, &Engine::page_fingerprint);
    if (parts.draft) parts.draft_pages = make(draft_bytes, &Engine::draft_page_fingerprint);
}

speculative::BatchGenerator Engine::make_batch(const BatchOptions& options) const {
    const std::int32_t most = std::clamp(options.sequences, 1, 1024);
    core::ContextOptions context = state_->context_options(context_length());
    // One text drafts as a conversation does, which is the fastest for it.
    const bool one_text = most == 1 && options.speculate;
    bool drafts = options.speculate && draft() != nullptr && has_source("draft") && !one_text;
    if (options.cache_tokens > 0) {
        const std::int64_t wanted = (options.cache_tokens + context.length - 1) / context.length;
        context.sequences = static_cast<std::int32_t>(std::clamp<std::int64_t>(wanted, 1, 1024));
    } else {
        const std::int32_t wanted = one_text ? kContextsOfOne : wanted_contexts(options.sequences, context.length);
        // Room for texts is worth more than drafts that were not asked for.
        if (state_->options.draft_if_cheap) drafts = drafts && state_->contexts_with_room(context, true) >= wanted;
        context.sequences =
            static_cast<std::int32_t>(std::clamp<std::int64_t>(state_->contexts_with_room(context, drafts), 1, wanted));
    }
    context.branches = std::max(0, most + std::max(0, options.kept_texts) - context.sequences);
    context.decode_rows = batch_decode_rows(most, state_->options.decode_rows);
    speculative::BatchParts parts;
    parts.target = std::make_unique<core::Context>(state_->target, context);
    parts.most_sequences = most;
    parts.classes_agree = core::classes_agree(ops());
    parts.short_given = core::short_given_tokens(ops());
    parts.reuse_prefixes = options.kept_texts > 0;
    parts.tokenizer = state_->tokenizer.get();
    parts.prefill_rows_beside = options.prefill_rows_beside > 0 ? options.prefill_rows_beside
                                : ops().asynchronous()          ? kDeviceRowsBeside
                                                                : kHostRowsBeside;
    parts.schedule_log = options.schedule_log;
    if (options.speculate) parts.speculation = speculation();
    parts.make_drafter = state_->lookup();
    parts.one_text = one_text;
    if (one_text) parts.drafters = state_->drafters();
    if (drafts) {
        core::ContextOptions own = state_->context_options(state_->draft_context());
        own.sequences = context.sequences;
        own.branches = context.branches;
        own.decode_rows = std::max(2 * most, state_->options.decode_rows);
        parts.draft = std::make_unique<core::Context>(state_->draft, own);
        parts.never_proposed = state_->never_proposed;
    }
    if (parts.reuse_prefixes && options.keep_pages) state_->add_page_stores(parts, *this);
    return speculative::BatchGenerator(std::move(parts));
}

}  // namespace foresay::engine
