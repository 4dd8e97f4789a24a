// What each device of runtime.devices has of a model whose layers are divided by outputs.
#include <algorithm>
#include <numeric>
#include <utility>
#include <variant>

#include "base/error.h"
#include "core/models/encodings.h"
#include "core/models/row_split.h"
#include "engine/bandwidth.h"
#include "engine/batch.h"
#include "engine/engine_state.h"
#include "kernels/divided_ops.h"
#include "kernels/quant/packed_panels.h"
#include "speculative/memory_estimate.h"

namespace foresay::engine {
namespace {

// A device, and what it would have.
struct Rank {
    std::string name;
    std::int64_t memory = 0;  // free
    bool on_host = false;     // with others that share it
    std::int64_t needed = 0;
    std::int64_t read = 0;
};

// Bytes of the ranks with these shares, of keys and values for `contexts` contexts. The draft is counted elsewhere.
void measure(std::vector<Rank>& ranks, core::ModelSource& source, kernels::DividedOps& ops,
             const core::ContextOptions& context, std::int32_t contexts, std::int64_t expanded) {
    const core::RowBytes bytes = core::row_bytes(source, ops.shares(), expanded);
    const kernels::KvShape kv = core::kv_shape(source.config());
    const std::int32_t pages = core::pages_for(context.length);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        ranks[r].read = bytes.read[r];
        const std::int64_t of_context = ops.kv_bytes_on(r, kv, pages, context.kv_format) +
                                        ops.expanded_kv_bytes_on(r, kv, pages, context.kv_format);
        ranks[r].needed =
            bytes.weights[r] + contexts * of_context +
            ops.workspace_bytes_on(r, source.config().shape, std::max(context.prefill_rows, context.decode_rows),
                                   context.decode_rows);
        if (r == 0 && !ranks[r].on_host) ranks[r].needed += bytes.tables;
    }
}

// Throws Error when a rank has no room. Ranks on the host share its memory.
void check_room(const std::vector<Rank>& ranks, const std::string& what) {
    std::int64_t on_host = 0;
    for (const Rank& rank : ranks) {
        const std::int64_t needed = rank.on_host ? on_host += rank.needed : rank.needed;
        if (needed <= rank.memory) continue;
        throw Error("the share of " + what + " that " + rank.name + " has needs " + speculative::format_bytes(needed) +
                    (rank.on_host ? " of the host's memory with those before it" : " there") + ", and " +
                    speculative::format_bytes(rank.memory) +
                    " are free; use other runtime.device_shares, a smaller model or a shorter --context");
    }
}

}  // namespace

void Engine::State::place_rows(OpenedParts& parts) const {
    if (parts.ranks == nullptr) return;
    kernels::DividedOps& ops = *parts.ranks;
    const core::Config& next = parts.config;
    const core::ContextOptions context = placed_context(parts, ops);

    std::vector<Rank> ranks;
    std::vector<bool> owns;
    for (std::size_t r = 0; r < ops.size(); ++r) {
        const std::int64_t own = ops.rank(r).free_memory();
        owns.push_back(own >= 0);
        Rank rank{.name = next.devices[r], .memory = 0, .on_host = own < 0};
        rank.memory = own < 0 ? speculative::available_memory() : std::max<std::int64_t>(0, own - kDeviceReserve);
        // The present target goes before the new one comes.
        if (target && r < placement.size() && placement[r].device == rank.name) rank.memory += placement[r].bytes;
        if (const auto allowed = allowed_bytes(next, r)) rank.memory = std::min(rank.memory, *allowed);
        ranks.push_back(std::move(rank));
    }
    const std::size_t drafts = draft_device(next, owns);
    place_draft(parts, drafts);
    const auto draft_needs = [&](std::int32_t contexts) {
        if (parts.draft.source == nullptr && parts.keep_draft) return draft_bytes;
        return bytes_of_draft(parts, context, contexts, ops.rank(drafts));
    };
    parts.draft_bytes = draft_needs(1);
    if (!parts.target.source) {  // the present one stays where it is
        parts.placement = placement;
        parts.placed_contexts = placed_contexts;
        parts.link_facts = link_facts;
        return;
    }
    core::ModelSource& source = *parts.target.source;
    const core::Setting& mode = next.setting("runtime.split_mode");
    const auto layers = static_cast<std::size_t>(source.config().shape.layers);
    source.place_layers(std::vector<std::int32_t>(layers, -static_cast<std::int32_t>(ops.size())));
    parts.link_facts = core::link_facts(source);
    const std::int64_t expanded = owns.front() ? source.expanded_bytes() : 0;
    const auto& given = std::get<std::vector<std::int64_t>>(next.setting("runtime.device_shares").value);
    const auto place = [&](std::int32_t contexts) {
        std::vector<Rank> wanted = ranks;
        wanted[drafts].memory -= draft_needs(contexts);
        if (given.empty()) {
            ops.set_shares(std::vector<std::int32_t>(ops.size(), 1));
            measure(wanted, source, ops, context, contexts, expanded);
            std::vector<std::int64_t> memory;
            for (const Rank& rank : wanted) memory.push_back(rank.memory);
            // Of equal shares the first one is the largest, by the tables.
            std::int64_t largest = 0;
            for (const Rank& rank : wanted) largest = std::max(largest, rank.needed);
            ops.set_shares(core::choose_shares(memory, largest * std::ssize(wanted)));
        } else {
            ops.set_shares(std::vector<std::int32_t>(given.begin(), given.end()));
        }
        measure(wanted, source, ops, context, contexts, expanded);
        check_room(wanted, source.path());
        return wanted;
    };
    parts.placed_contexts = options.sequences > 1 ? wanted_contexts(options.sequences, context.length) : 1;
    for (;; parts.placed_contexts /= 2) {
        try {
            ranks = place(parts.placed_contexts);
            break;
        } catch (const Error& problem) {
            if (parts.placed_contexts > 1) continue;
            throw at(given.empty() ? mode : next.setting("runtime.device_shares"), problem);
        }
    }
    parts.draft_bytes = draft_needs(parts.placed_contexts);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        PlacedLayers placed;
        placed.device = ranks[r].name;
        placed.count = source.config().shape.layers;
        placed.bytes = ranks[r].needed;
        placed.memory = ranks[r].memory;
        placed.read = ranks[r].read;
        placed.share = core::row_share_text(source.config(), ops.shares(), r);
        // A prediction is shown by what loads no weights; elsewhere the measurement would only cost time.
        const bool loops = ops.rank(r).describe().name == "reference";
        if (!options.weights && !loops) {
            placed.seconds = static_cast<double>(placed.read) / std::max(1.0, engine::read_bandwidth(ops.rank(r)));
        }
        parts.placement.push_back(std::move(placed));
    }
}

}  // namespace foresay::engine
