// engine/hosts/hosts.h: an engine over several hosts: one process each, of which rank 0 runs the command and the others
// serve layers (docs/multi-gpu.md).
//
// Threads:  one caller at a time.
// Errors:   Error and kernels::LostHost, as kernels/hosts/host_group.h.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "engine/engine.h"
#include "engine/hosts/launch.h"
#include "kernels/hosts/host_group.h"
#include "kernels/hosts/remote_ops.h"

namespace foresay::core {
class ModelSource;
}

namespace foresay::engine {

// What rank 0 has of the other hosts. EngineOptions::hosts takes it.
class Hosts {
public:
    // Waits for all ranks. `config`: its first GPU is the one that NCCL uses. `version`: of the program, the same on
    // every host.
    static std::shared_ptr<Hosts> join(const Launch& launch, const core::Config& config, const std::string& version);

    int size() const { return group_->size(); }
    const std::string& nccl() const { return nccl_; }  // "NCCL 2.27.3"
    kernels::HostGroup& group() { return *group_; }
    // Their devices, rank by rank, as backends.
    std::vector<std::shared_ptr<kernels::RemoteOps>> open_devices();

    // The target as an engine has placed it: the ranks begin to load their layers. `devices`: of each layer, the number
    // in a list that begins with `own` devices of rank 0 and goes on with open_devices().
    struct Load {
        std::vector<std::int32_t> devices;
        std::int32_t own = 0;
        std::int32_t context = 0;
        bool by_backend = false;  // random weights: the backends make them
        std::string fingerprint;
    };
    void begin_load(const Load& load, const std::vector<kernels::RemoteOps*>& remotes);
    // Waits until they have loaded, and compares what they have with what `remotes` were asked to prepare.
    void finish_load(const std::vector<kernels::RemoteOps*>& remotes,
                     const std::function<void(std::int64_t done, std::int64_t all)>& progress);

    // Seconds for so many bytes to a rank and back, measured now.
    double echo_seconds(int rank, std::size_t bytes);

private:
    explicit Hosts(std::unique_ptr<kernels::HostLink> link, double seconds);

    std::shared_ptr<kernels::HostGroup> group_;
    std::vector<kernels::RemoteDevice> devices_;
    std::string nccl_;
    std::unique_ptr<kernels::LinkBuffer> echo_;
};

// Serves the layers of the other ranks until rank 0 ends. Returns the line that says so. `ready`: called with a line
// once rank 0 is connected, from when on Launch::interrupted is not looked at; what it throws ends this.
std::string serve_layers(const Launch& launch, const core::Config& config, const EngineOptions& options,
                         const std::string& version, const std::function<void(const std::string&)>& ready);

// What tells one model from another, from the sizes of its files and samples of their bytes.
std::string quick_fingerprint(const core::Config& config, const EngineOptions& options);

}  // namespace foresay::engine
