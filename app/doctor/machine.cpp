#include "app/doctor/machine.h"

#include <sys/utsname.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <system_error>
#include <thread>

#include "app/bench/bench.h"
#include "app/journal/store.h"
#include "app/plugin_path.h"
#include "base/error.h"
#include "core/config/layers.h"
#include "kernels/cpu/isa_select.h"
#include "kernels/cuda_info.h"
#include "kernels/ops.h"
#include "speculative/memory_estimate.h"

namespace foresay::app {

namespace {

std::string joined(const std::vector<std::string>& words) {
    std::string text;
    for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
    return text;
}

// The value of `key` in a file of lines "key : value", such as /proc/cpuinfo; empty if there is none.
std::string value_in(const char* path, const std::string& key) {
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(key)) continue;
        const std::size_t colon = line.find(':');
        if (colon == std::string::npos) continue;
        const std::size_t begin = line.find_first_not_of(" \t", colon + 1);
        return begin == std::string::npos ? "" : line.substr(begin);
    }
    return {};
}

std::string system_name() {
    std::string text;
    std::ifstream file("/etc/os-release");
    const std::string key = "PRETTY_NAME=";
    for (std::string line; std::getline(file, line);) {
        if (!line.starts_with(key)) continue;
        text = line.substr(key.size());
        if (text.size() >= 2 && text.front() == '"' && text.back() == '"') text = text.substr(1, text.size() - 2);
    }
    utsname kernel{};
    if (::uname(&kernel) == 0) text += (text.empty() ? "" : ", ") + std::string(kernel.sysname) + " " + kernel.release;
    return text;
}

std::string cuda_version(int version) {
    return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// "580.65.06, ", as the kernel's module says.
std::string driver_version() {
    std::string version;
    std::getline(std::ifstream("/sys/module/nvidia/version") >> std::ws, version);
    return version.empty() ? "" : version + ", ";
}

std::string gpu_text(const kernels::CudaDevice& device) {
    return format("%s, compute capability %d.%d, ", device.name.c_str(), device.capability / 10,
                  device.capability % 10) +
           speculative::format_bytes(device.memory) + ", " + speculative::format_bytes(device.free_memory) + " free";
}

// The library for prompts on a GPU.
std::string cublaslt_text() {
    const std::size_t version = kernels::cublaslt_version();
    if (version > 0) {
        return std::to_string(version / 10000) + "." + std::to_string(version % 10000 / 100) + "." +
               std::to_string(version % 100);
    }
    const bool refused = std::getenv("FORESAY_NO_CUBLASLT") != nullptr;
    return std::string(refused ? "not used, because FORESAY_NO_CUBLASLT is set" : "not found") +
           ": prompts on a GPU take the kernels of generated text, which are slower for many rows";
}

// "every GPU reads every other's memory", or which do.
std::string peers_text(const std::vector<kernels::CudaDevice>& devices) {
    std::vector<std::string> can;
    std::size_t pairs = 0;
    for (const kernels::CudaDevice& from : devices) {
        for (const kernels::CudaDevice& to : devices) {
            if (from.index == to.index) continue;
            ++pairs;
            if (kernels::cuda_peer_access(from.index, to.index)) {
                can.push_back(std::to_string(from.index) + " reads " + std::to_string(to.index));
            }
        }
    }
    if (can.size() == pairs) return "every GPU reads every other's memory";
    return can.empty() ? "no GPU reads another's memory" : joined(can);
}

// Whether a file can be made in `folder`, tried by making one.
bool writable(const std::filesystem::path& folder) {
    std::string name = (folder / ".doctor-XXXXXX").string();
    const int descriptor = ::mkstemp(name.data());
    if (descriptor < 0) return false;
    ::close(descriptor);
    ::unlink(name.c_str());
    return true;
}

}  // namespace

Facts build_facts() {
    Facts facts;
    facts.emplace_back("foresay", FORESAY_VERSION);
    facts.emplace_back("compiler", __VERSION__);
    const kernels::CudaVersions cuda = kernels::cuda_versions();
    facts.emplace_back("CUDA runtime",
                       cuda.runtime > 0 ? cuda_version(cuda.runtime) : "none: built without the CUDA backend");
    std::error_code problem;
    const auto program = std::filesystem::read_symlink("/proc/self/exe", problem);
    if (!problem) facts.emplace_back("program", program.string());
    return facts;
}

Facts machine_facts() {
    Facts facts;
    facts.emplace_back("system", system_name());
    const std::string processor = value_in("/proc/cpuinfo", "model name");
    const std::string threads = std::to_string(std::thread::hardware_concurrency()) + " threads";
    facts.emplace_back("processor", (processor.empty() ? "" : processor + ", ") + threads);
    facts.emplace_back("instruction sets", joined(kernels::cpu::usable_isas()));
    facts.emplace_back("memory", speculative::format_bytes(speculative::available_memory()) + " available");
    std::string why;
    const std::vector<kernels::CudaDevice> devices = kernels::cuda_devices(&why);
    if (devices.empty()) facts.emplace_back("GPU", "none: " + why);
    for (const kernels::CudaDevice& device : devices) {
        facts.emplace_back("cuda:" + std::to_string(device.index), gpu_text(device));
    }
    if (const int driver = kernels::cuda_versions().driver; driver > 0) {
        facts.emplace_back("driver", driver_version() + "for CUDA " + cuda_version(driver));
    }
    if (kernels::cuda_versions().runtime > 0) facts.emplace_back("cuBLASLt", cublaslt_text());
    if (devices.size() > 1) facts.emplace_back("peer access", peers_text(devices));
    return facts;
}

Facts file_facts() {
    Facts facts;
    std::vector<std::string> files;
    for (const std::filesystem::path& file : core::standard_config_files(core::read_variable)) {
        std::error_code problem;
        if (std::filesystem::exists(file, problem)) files.push_back(file.string());
    }
    facts.emplace_back("configuration", files.empty() ? "no files of the system or the user" : joined(files));
    try {
        const std::filesystem::path sessions = sessions_folder();
        facts.emplace_back("sessions", sessions.string() + (writable(sessions) ? "" : ", which cannot be written"));
    } catch (const Error& error) {
        facts.emplace_back("sessions", error.what());
    }
    const std::vector<std::string> barred = barred_plugin_names();
    if (!barred.empty()) facts.emplace_back("barred plugins", joined(barred));
    return facts;
}

std::vector<std::string> usable_devices() {
    std::vector<std::string> devices = {"cpu"};
    for (const kernels::CudaDevice& device : kernels::cuda_devices()) {
        devices.push_back("cuda:" + std::to_string(device.index));
    }
    return devices;
}

std::string first_of_its_kind(const std::vector<std::string>& devices, const std::string& device) {
    std::map<std::string, std::string> names;
    for (const kernels::CudaDevice& gpu : kernels::cuda_devices())
        names["cuda:" + std::to_string(gpu.index)] = gpu.name;
    for (const std::string& other : devices) {
        if (names.contains(device) && names.contains(other) && names[other] == names[device]) return other;
    }
    return device;
}

}  // namespace foresay::app
