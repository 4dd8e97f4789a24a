// engine/backend.h: opens the backend that `runtime.device` names, or those of `runtime.devices` as one (kernels::
// SplitOps, or kernels::DividedOps by `runtime.split_mode`), and describes it for messages.
//
// Errors:   Error: a device that is missing or cannot be used, an instruction set that is unknown or that the CPU
//           lacks.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "kernels/ops.h"

namespace foresay::engine {

struct BackendChoice {
    bool list = false;  // runtime.devices
    bool rows = false;  // likewise, which divide each layer
    bool cuda = false;
    std::int32_t device = 0;           // of cuda
    std::int32_t part = 0, parts = 1;  // kernels::CudaOptions
    std::string why_processor;         // why `auto` chose no GPU, in one clause; empty when it was not asked or did
    // The configuration key to blame when the backend does not open.
    const char* key() const { return list ? "runtime.devices" : cuda ? "runtime.device" : "runtime.isa"; }
};

BackendChoice choose_backend(const core::Config& config);
// runtime.devices, or else runtime.device, each as a configuration that names it alone.
std::vector<core::Config> each_device(const core::Config& config);
// `notice`: kernels::DividedOptions::notice.
std::unique_ptr<kernels::Ops> open_backend(const core::Config& config, const BackendChoice& choice,
                                           std::function<void(const std::string& sentence)> notice = {});

// "cpu (avx512, 2 threads)"
std::string backend_text(const kernels::BackendInfo& info);
std::string backend_text(const kernels::Ops& ops);

// Whether this machine has an NVIDIA GPU, with or without a driver, according to the system's list of PCI devices.
bool has_nvidia_gpu(const std::filesystem::path& pci_devices = "/sys/bus/pci/devices");

}  // namespace foresay::engine
