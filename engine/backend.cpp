#include "engine/backend.h"

#include <algorithm>
#include <fstream>
#include <system_error>
#include <utility>
#include <variant>
#include <vector>

#include "kernels/divided_ops.h"
#include "kernels/split_ops.h"

namespace foresay::engine {

namespace fs = std::filesystem;

BackendChoice choose_backend(const core::Config& config) {
    BackendChoice choice;
    choice.list = !config.devices.empty();
    choice.rows = choice.list && std::get<std::string>(config.setting("runtime.split_mode").value) == "row";
    if (choice.list) return choice;
    choice.cuda = config.device.starts_with("cuda");
    if (config.device.starts_with("cuda:")) choice.device = std::stoi(config.device.substr(5));
    if (config.device == "auto") {
        const std::vector<kernels::CudaDevice> devices = kernels::cuda_devices(&choice.why_processor);
        choice.cuda = !devices.empty();
        if (choice.cuda) choice.device = devices.front().index;
    }
    return choice;
}

std::vector<core::Config> each_device(const core::Config& config) {
    std::vector<core::Config> all;
    for (const std::string& name : config.devices.empty() ? std::vector{config.device} : config.devices) {
        core::Config one = config;
        one.device = name;
        one.devices.clear();
        all.push_back(std::move(one));
    }
    return all;
}

std::unique_ptr<kernels::Ops> open_backend(const core::Config& config, const BackendChoice& choice,
                                           std::function<void(const std::string& sentence)> notice) {
    if (choice.list) {
        const std::string handover = std::get<std::string>(config.setting("runtime.row_handover").value);
        const bool link = choice.rows && handover != "copy";
        const std::vector<core::Config> configs = each_device(config);
        std::vector<BackendChoice> choices;
        for (const core::Config& one : configs) choices.push_back(choose_backend(one));
        std::vector<std::shared_ptr<kernels::Ops>> devices;
        for (std::size_t i = 0; i < configs.size(); ++i) {
            BackendChoice& own = choices[i];
            // Ranks that run at once share a device that is named twice; others take turns.
            const auto same = [&](const BackendChoice& other) { return other.device == own.device; };
            if (link && own.cuda) {
                own.part = static_cast<std::int32_t>(
                    std::count_if(choices.begin(), choices.begin() + std::ptrdiff_t(i), same));
                own.parts = static_cast<std::int32_t>(std::ranges::count_if(choices, same));
            }
            devices.push_back(open_backend(configs[i], own));
        }
        if (choice.rows) {
            // Prompts in groups of rows have not run on a GPU yet (docs/experiments/decode-over-gpus.md).
            kernels::DividedOptions options{.names = config.devices, .shares = {}, .link = link, .group_rows = 0};
            options.notice = std::move(notice);
            auto ops = std::make_unique<kernels::DividedOps>(std::move(devices), std::move(options));
            if (handover == "link" && !ops->linked()) {
                throw Error("'runtime.row_handover' link needs GPUs, and " + config.devices.front() +
                            " and the others of 'runtime.devices' cannot be linked; use auto or copy");
            }
            return ops;
        }
        return std::make_unique<kernels::SplitOps>(std::move(devices), config.devices);
    }
    if (choice.cuda) return kernels::make_cuda_ops({choice.device, choice.part, choice.parts});
    if (config.device == "reference") return kernels::make_reference_ops();
    return kernels::make_cpu_ops({config.threads, config.isa});
}

std::string backend_text(const kernels::BackendInfo& info) {
    return info.name + (info.detail.empty() ? "" : " (" + info.detail + ")");
}

std::string backend_text(const kernels::Ops& ops) { return backend_text(ops.describe()); }

bool has_nvidia_gpu(const fs::path& pci_devices) {
    const auto line = [](const fs::path& path) {
        std::string text;
        std::getline(std::ifstream(path) >> std::ws, text);
        return text;
    };
    std::error_code ignored;
    for (const auto& device : fs::directory_iterator(pci_devices, ignored)) {
        // PCI class 03 covers display and 3D controllers. A graphics card's audio and USB functions have other classes.
        if (line(device.path() / "vendor") == "0x10de" && line(device.path() / "class").starts_with("0x03"))
            return true;
    }
    return false;
}

}  // namespace foresay::engine
