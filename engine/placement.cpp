// Which layers of the models are on which device of runtime.devices.
#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>
#include <variant>

#include "base/error.h"
#include "core/models/layer_split.h"
#include "engine/bandwidth.h"
#include "engine/batch.h"
#include "engine/engine_state.h"
#include "engine/hosts/hosts.h"
#include "engine/measured_times.h"
#include "kernels/divided_ops.h"
#include "kernels/quant/packed_panels.h"
#include "kernels/split_ops.h"
#include "speculative/memory_estimate.h"

namespace foresay::engine {
namespace {

core::DeviceRoom room_of(kernels::Ops& ops, std::string name, const core::ModelConfig& config,
                         const core::ContextOptions& context) {
    core::DeviceRoom room;
    room.name = std::move(name);
    const std::int64_t own = ops.free_memory();
    room.memory = own >= 0 ? std::max<std::int64_t>(0, own - kDeviceReserve) : speculative::available_memory();
    room.maps_tables = own < 0;
    room.workspace =
        ops.workspace_bytes(config.shape, std::max(context.prefill_rows, context.decode_rows), context.decode_rows);
    const std::int32_t pages = core::pages_for(context.length);
    for (std::int32_t i = 0; i < config.shape.layers; ++i) {
        const core::LayerConfig layer = core::layer_config(config, i);
        kernels::KvShape shape;
        if (layer.own_kv) shape.layers.push_back({layer.kv_heads, layer.head_dim});
        room.kv.push_back(layer.own_kv ? ops.kv_bytes(shape, pages, context.kv_format) : 0);
    }
    return room;
}

// Several devices may share the host's memory; each of them has room for its own layers.
void check_host(const core::ModelBytes& bytes, std::span<const core::DeviceRoom> rooms, const core::LayerSplit& split,
                const std::string& what) {
    std::int64_t needed = 0, memory = 0;
    std::int32_t first = 0;
    for (std::size_t d = 0; d < rooms.size(); ++d) {
        if (rooms[d].maps_tables) {
            needed += core::device_bytes(bytes, rooms[d], first, first + split[d]);
            memory = std::max(memory, rooms[d].memory);
        }
        first += split[d];
    }
    if (needed <= memory) return;
    throw Error("the layers of " + what + " that are on the host need " + speculative::format_bytes(needed) +
                " together, and " + speculative::format_bytes(memory) +
                " are free; use a smaller model or a shorter --context");
}

std::size_t host_of(const kernels::SplitOps& list, std::size_t d) {
    const auto* const remote = dynamic_cast<const kernels::RemoteOps*>(&list.device(d));
    return remote != nullptr ? static_cast<std::size_t>(remote->device().rank) : 0;
}

}  // namespace

std::size_t draft_device(const core::Config& next, const std::vector<bool>& owns) {
    if (const auto& wanted = std::get<std::string>(next.setting("draft.device").value); !wanted.empty()) {
        return static_cast<std::size_t>(std::ranges::find(next.devices, wanted) - next.devices.begin());
    }
    const auto first = std::ranges::find(owns, true);
    return first == owns.end() ? 0 : static_cast<std::size_t>(first - owns.begin());
}

std::optional<std::int64_t> allowed_bytes(const core::Config& next, std::size_t d) {
    const auto& mib = std::get<std::vector<std::int64_t>>(next.setting("runtime.device_mib").value);
    if (d >= mib.size() || mib[d] == 0) return std::nullopt;
    return mib[d] << 20;
}

core::ContextOptions Engine::State::placed_context(const OpenedParts& parts, const kernels::Ops& list) const {
    core::ContextOptions context;
    context.length = parts.context_length;
    context.kv_format = parts.config.kv_format;
    context.decode_rows =
        options.sequences > 1 ? batch_decode_rows(options.sequences, options.decode_rows) : options.decode_rows;
    context.prefill_rows = std::min(list.prefill_rows(), context.length);
    return context;
}

void Engine::State::place_draft(OpenedParts& parts, std::size_t d) {
    if (core::ModelSource* const source = parts.draft.source.get(); source != nullptr) {
        source->place_layers(std::vector<std::int32_t>(static_cast<std::size_t>(source->config().shape.layers),
                                                       static_cast<std::int32_t>(d)));
    }
}

std::int64_t Engine::State::bytes_of_draft(const OpenedParts& parts, core::ContextOptions context,
                                           std::int32_t contexts, kernels::Ops& device) {
    core::ModelSource* const source = parts.draft.source.get();
    if (source == nullptr) return 0;
    context.length = std::min(context.length, source->config().context_length);
    context.sequences = contexts;
    return speculative::estimate_memory(*source, context, device).total();
}

bool Engine::State::end_layers_of_hosts(const OpenedParts& parts, std::vector<core::DeviceRoom>& rooms) const {
    const core::Config& next = parts.config;
    if (!next.device_layers.empty()) {
        throw at(next.setting("runtime.device_layers"),
                 Error("'runtime.device_layers' is for the devices of one host; name the layers of each with "
                       "runtime.host_layers"));
    }
    const core::Setting& setting = next.setting("runtime.host_layers");
    const auto& layers = std::get<std::vector<std::int64_t>>(setting.value);
    if (layers.empty()) return false;
    const auto hosts = static_cast<std::size_t>(options.hosts->size());
    const std::int64_t all = std::accumulate(layers.begin(), layers.end(), std::int64_t{0});
    const std::int32_t has = parts.target.source->config().shape.layers;
    if (layers.size() != hosts || all != has) {
        throw at(setting, Error("'runtime.host_layers' names " + std::to_string(all) + " layers of " +
                                std::to_string(layers.size()) + " hosts, and the model has " + std::to_string(has) +
                                " layers for " + std::to_string(hosts) + " hosts"));
    }
    // The last device of each host ends where the layers of the next host begin.
    bool one_each = true;
    std::int64_t end = 0;
    for (std::size_t d = 0, host = 0; host < hosts; ++host) {
        const std::size_t first = d;
        while (d < rooms.size() && host_of(*parts.list, d) == host) ++d;
        one_each &= d == first + 1;
        end += layers[host];
        rooms[d - 1].end = static_cast<std::int32_t>(end);
    }
    return one_each;
}

void Engine::State::place_layers(OpenedParts& parts) const {
    if (parts.list == nullptr) return;
    kernels::SplitOps& list = *parts.list;
    const core::Config& next = parts.config;
    const core::ContextOptions context = placed_context(parts, list);

    const std::size_t own = own_devices(list);
    std::vector<bool> owns;
    for (std::size_t d = 0; d < own; ++d) owns.push_back(list.device(d).free_memory() >= 0);
    const std::size_t drafts = draft_device(next, owns);
    place_draft(parts, drafts);
    const auto draft_needs = [&](std::int32_t contexts) {
        return bytes_of_draft(parts, context, contexts, list.device(drafts));
    };
    parts.draft_bytes = parts.keep_draft ? draft_bytes : draft_needs(1);
    if (!parts.target.source) {  // the present one stays where it is
        parts.placement = placement;
        parts.placed_contexts = placed_contexts;
        return;
    }
    core::ModelSource& source = *parts.target.source;
    const core::ModelBytes bytes = core::model_bytes(source);
    std::vector<core::DeviceRoom> rooms;
    for (std::size_t d = 0; d < list.size(); ++d) {
        rooms.push_back(room_of(list.device(d), list.name(d), source.config(), context));
        // The present target goes before the new one comes.
        for (const PlacedLayers& present : placement) {
            if (target && present.device == rooms[d].name) rooms[d].memory += present.bytes;
        }
        if (std::optional<std::int64_t> allowed = d < own ? allowed_bytes(next, d) : std::nullopt) {
            if (parts.keep_draft && d == drafts) *allowed -= parts.draft_bytes;
            rooms[d].memory = std::min(rooms[d].memory, std::max<std::int64_t>(0, *allowed));
        }
    }
    if (parts.draft_bytes > rooms[drafts].memory && !parts.keep_draft) {
        const std::string why = "it needs " + speculative::format_bytes(parts.draft_bytes) + " on " +
                                rooms[drafts].name + ", and " + speculative::format_bytes(rooms[drafts].memory) +
                                " are free there";
        if (!draft_may_be_left_out(next))
            throw at(next.setting("draft.model"), Error("the draft does not fit: " + why));
        drop_draft(parts, why);
        parts.draft_bytes = 0;
    }
    // A prediction is shown by what loads no weights; elsewhere the measurement would only cost time.
    const bool given = options.hosts ? end_layers_of_hosts(parts, rooms) : !next.device_layers.empty();
    const bool measured = !given || !options.weights;
    std::vector<bool> loops(list.size());  // of the reference: not bound by memory, and slower than anything else
    for (std::size_t d = 0; d < list.size() && measured; ++d) {
        kernels::Ops& device = list.device(d);
        loops[d] = device.describe().name == "reference";
        if (loops[d]) continue;
        // Of the processor, memory is not all that takes time. Other hosts have no tensors of this one's model.
        if (d < own && !owns[d]) rooms[d].times = measured_times(device, source, bytes);
        if (rooms[d].times.layers.empty()) rooms[d].bytes_per_second = std::max(1.0, engine::read_bandwidth(device));
    }

    std::vector<std::int64_t> expanded_kv;  // by device
    for (std::size_t d = 0; d < list.size(); ++d) {
        expanded_kv.push_back(list.device(d).expanded_kv_bytes(core::kv_shape(source.config()),
                                                               core::pages_for(context.length), context.kv_format));
    }
    core::LayerSplit split = next.device_layers;
    // Keys and values of as many contexts as sequences ask for, or of as many as have room.
    const auto with_contexts = [&](std::int32_t contexts) {
        std::vector<core::DeviceRoom> wanted = rooms;
        for (std::size_t d = 0; d < wanted.size(); ++d) {
            for (std::int64_t& layer : wanted[d].kv) layer *= contexts;
            wanted[d].workspace += contexts * expanded_kv[d];
        }
        if (parts.draft.source) wanted[drafts].memory -= draft_needs(contexts);
        return wanted;
    };
    parts.placed_contexts = options.sequences > 1 ? wanted_contexts(options.sequences, context.length) : 1;
    for (;; parts.placed_contexts /= 2) {
        const std::vector<core::DeviceRoom> wanted = with_contexts(parts.placed_contexts);
        try {
            if (next.device_layers.empty()) {
                split = core::choose_split(source.config(), bytes, wanted, source.path());
            } else {
                core::check_split(split, source.config(), list.size());
                core::check_room(bytes, wanted, split, source.path());
            }
            check_host(bytes, wanted, split, source.path());
            rooms = wanted;
            break;
        } catch (const Error& problem) {
            if (parts.placed_contexts > 1) continue;
            const char* const key = options.hosts                ? "runtime.host_layers"
                                    : next.device_layers.empty() ? "runtime.devices"
                                                                 : "runtime.device_layers";
            throw at(next.setting(key), problem);
        }
    }
    if (parts.draft.source) parts.draft_bytes = draft_needs(parts.placed_contexts);
    source.place_layers(core::devices_of(split));
    std::int32_t first = 0;
    for (std::size_t d = 0; d < list.size(); ++d) {
        const std::int32_t end = first + split[d];
        parts.placement.push_back(
            {.device = rooms[d].name,
             .first = first,
             .count = split[d],
             .bytes = core::device_bytes(bytes, rooms[d], first, end),
             .memory = rooms[d].memory,
             .read = core::read_bytes(bytes, first, end),
             .seconds = measured && !loops[d] ? core::row_seconds(bytes, rooms[d], first, end) : 0.0,
             .by_kernels = !rooms[d].times.layers.empty()});
        first = end;
    }
}

double Engine::read_bandwidth() const {
    if (state_->ranks != nullptr) {  // all at once
        double all = 0.0;
        for (std::size_t r = 0; r < state_->ranks->size(); ++r) {
            all += engine::read_bandwidth(state_->ranks->rank(r));
        }
        return all;
    }
    if (state_->list == nullptr) return engine::read_bandwidth(*state_->ops);
    std::int64_t read = 0;
    double seconds = 0.0;
    for (std::size_t d = 0; d < state_->list->size() && d < state_->placement.size(); ++d) {
        const std::int64_t own = state_->placement[d].read;
        if (own == 0) continue;
        read += own;
        seconds += static_cast<double>(own) / std::max(1.0, engine::read_bandwidth(state_->list->device(d)));
    }
    return seconds > 0.0 ? static_cast<double>(read) / seconds : 0.0;
}

}  // namespace foresay::engine
