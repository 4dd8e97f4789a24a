// What ranks other than 0 do: open their devices, load the layers that rank 0 gives them, and serve.
#include <algorithm>
#include <utility>
#include <variant>

#include "base/error.h"
#include "core/models/model.h"
#include "core/weights/checksums.h"
#include "engine/backend.h"
#include "engine/bandwidth.h"
#include "engine/engine_state.h"
#include "engine/hosts/host_parts.h"
#include "engine/hosts/hosts.h"
#include "kernels/hosts/host_server.h"
#include "kernels/split_ops.h"
#include "speculative/memory_estimate.h"

namespace foresay::engine {
namespace {

using kernels::NotedOps;

// Several processes of one host that name no GPU take one each.
core::Config own_config(core::Config config, const Launch& launch) {
    if (launch.local_rank == 0 || !config.devices.empty()) return config;
    if (config.device != "auto" && config.device != "cuda") return config;
    const std::vector<kernels::CudaDevice> devices = kernels::cuda_devices();
    if (devices.empty()) return config;
    const auto d = static_cast<std::size_t>(launch.local_rank) % devices.size();
    config.device = "cuda:" + std::to_string(devices[d].index);
    return config;
}

class LayerServer {
public:
    LayerServer(core::Config config, const EngineOptions& options) : config_(std::move(config)), options_(options) {
        for (const core::Config& one : each_device(config_)) {
            devices_.push_back(open_backend(one, choose_backend(one)));
        }
    }

    kernels::HostServerOptions server(const Launch& launch, const std::string& version) {
        kernels::HostServerOptions server{.version = version, .devices = devices_};
        server.start_seconds = launch.start_seconds;
        server.seconds = launch.seconds;
        server.free_memory = [this](std::size_t d) {
            const std::int64_t own = devices_[d]->free_memory();
            const std::int64_t free = own >= 0 ? own : speculative::available_memory();
            const std::optional<std::int64_t> most = allowed_bytes(config_, d);
            // Rank 0 leaves the reserve free of whatever is told.
            return most ? std::min(free, *most + kDeviceReserve) : free;
        };
        server.bandwidth = [this](std::size_t d) { return read_bandwidth(*devices_[d]); };
        server.load = [this](kernels::MessageReader request, const kernels::HostServerOptions::Progress& progress) {
            return load(request, progress);
        };
        return server;
    }

private:
    std::vector<NotedOps> load(kernels::MessageReader request, const kernels::HostServerOptions::Progress& progress) {
        std::vector<std::int32_t> layers;
        request.get_list(layers);
        const auto first = request.get<std::int32_t>(), all = request.get<std::int32_t>();
        const auto context = request.get<std::int32_t>();
        const auto by_backend = request.get<bool>();
        const std::string fingerprint = request.get_text();
        if (fingerprint != quick_fingerprint(config_, options_)) {
            throw Error("its model, " +
                        (config_.target_model.empty() ? "random weights" : config_.target_model.string()) +
                        ", is not that of rank 0; name the same model on every host");
        }
        model_.reset();
        std::unique_ptr<core::ModelSource> source = open_target(config_, options_, by_backend);
        if (options_.weights && config_.check_files && !config_.target_model.empty()) {
            core::check_listed_files(config_.target_model, ", or go on with --set runtime.check_files=false", progress);
        }
        const auto own = static_cast<std::int32_t>(devices_.size());
        if (first < 1 || first + own > all || all > kernels::kMostDevices ||
            std::ssize(layers) != source->config().shape.layers ||
            std::ranges::any_of(layers, [&](std::int32_t d) { return d < 0 || d >= all; })) {
            throw Error("rank 0 asks for layers that are not there; start the same program on every host");
        }
        source->place_layers(layers);
        std::vector<NotedOps> notes(devices_.size());
        std::vector<std::shared_ptr<kernels::Ops>> list;
        for (std::int32_t d = 0; d < all; ++d) {
            const std::int32_t mine = d - first;
            if (mine < 0 || mine >= own) {
                list.push_back(std::make_shared<kernels::RemoteOps>(nullptr, kernels::RemoteDevice{}));
            } else {
                const auto i = static_cast<std::size_t>(mine);
                list.push_back(std::make_shared<kernels::NotingOps>(*devices_[i], notes[i]));
            }
        }
        std::vector<std::string> names(list.size(), "another host");
        for (std::size_t i = 0; i < devices_.size(); ++i) {
            names[static_cast<std::size_t>(first) + i] = devices_[i]->describe().name;
        }
        kernels::SplitOps ops(std::move(list), std::move(names));
        const std::uint32_t mask = ((own < 32 ? 1u << own : 0u) - 1u) << first;
        model_ = core::Model::load(std::move(source), ops, {.progress = progress, .context = context, .devices = mask});
        return notes;
    }

    core::Config config_;
    const EngineOptions& options_;
    std::vector<std::shared_ptr<kernels::Ops>> devices_;
    std::shared_ptr<const core::Model> model_;  // owns what is noted
};

}  // namespace

std::string serve_layers(const Launch& launch, const core::Config& config, const EngineOptions& options,
                         const std::string& version, const std::function<void(const std::string&)>& ready) {
    const core::Config own = own_config(config, launch);
    if (choose_backend(own).rows) throw rows_on_one_host(own);
    const std::unique_ptr<kernels::HostLink> link = open_link(launch, own);
    LayerServer layers(own, options);
    link->all_joined();
    ready(link->name(launch.rank) + " of " + std::to_string(launch.size) + " serves " + link->name(0));
    kernels::HostServer(*link, layers.server(launch, version)).run();
    return "rank 0 has ended";
}

}  // namespace foresay::engine
