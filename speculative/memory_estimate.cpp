#include "speculative/memory_estimate.h"

#include <sys/resource.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <limits>
#include <sstream>

#include "base/error.h"
#include "core/models/encodings.h"
#include "kernels/quant/packed_panels.h"

namespace foresay::speculative {
namespace {

constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();

std::int64_t read_number(const char* path) {
    std::ifstream file(path);
    std::int64_t value = 0;
    return file >> value ? value : -1;
}

// MemAvailable: what the kernel could give without swapping.
std::int64_t machine_available() {
    std::ifstream file("/proc/meminfo");
    std::string line;
    while (std::getline(file, line)) {
        std::istringstream words(line);
        std::string key;
        std::int64_t kib = 0;
        if (words >> key >> kib && key == "MemAvailable:") return kib * 1024;
    }
    return kUnknown;
}

// Page cache that the control group can drop counts as free.
std::int64_t reclaimable(const char* path, const std::string& wanted) {
    std::ifstream file(path);
    std::string key;
    std::int64_t value = 0;
    while (file >> key >> value) {
        if (key == wanted) return value;
    }
    return 0;
}

std::int64_t group_available() {
    const std::int64_t limit = read_number("/sys/fs/cgroup/memory.max");
    if (limit >= 0) {
        const std::int64_t used = std::max<std::int64_t>(0, read_number("/sys/fs/cgroup/memory.current"));
        const std::int64_t files = reclaimable("/sys/fs/cgroup/memory.stat", "inactive_file");
        return std::max<std::int64_t>(0, limit - used + files);
    }
    const std::int64_t old_limit = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
    if (old_limit < 0) return kUnknown;
    const std::int64_t used = std::max<std::int64_t>(0, read_number("/sys/fs/cgroup/memory/memory.usage_in_bytes"));
    const std::int64_t files = reclaimable("/sys/fs/cgroup/memory/memory.stat", "total_inactive_file");
    return std::max<std::int64_t>(0, old_limit - used + files);
}

std::int64_t address_space() {
    rlimit limit{};
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kUnknown;
    return static_cast<std::int64_t>(limit.rlim_cur);
}

}  // namespace

MemoryEstimate& MemoryEstimate::operator+=(const MemoryEstimate& other) {
    weights += other.weights;
    mapped += other.mapped;
    cache += other.cache;
    activations += other.activations;
    return *this;
}

MemoryEstimate estimate_memory(core::ModelSource& source, const core::ContextOptions& options,
                               const kernels::Ops& ops) {
    const core::ModelConfig& config = source.config();
    const kernels::ModelShape& s = config.shape;
    MemoryEstimate estimate;
    estimate.mapped = source.weight_bytes();
    // On the host the embedding tables stay in the mapped file, and all other weights are copied into packed form. A
    // tied LM head is packed in addition to the table. A device holds everything in its own memory, the tables
    // included.
    const std::int64_t table = source.embedding_bytes();
    const bool device = ops.free_memory() >= 0;
    const std::int64_t stay = table + source.per_layer_table_bytes();
    estimate.weights = estimate.mapped + (config.tied_head ? table : 0) - (device ? 0 : stay);
    if (device) estimate.weights += source.expanded_bytes();
    if (ops.describe().name == "cpu") estimate.weights -= core::narrowed_bytes(source);
    const std::int64_t pages = core::pages_for(options.length);
    const kernels::KvShape kv = core::kv_shape(config);
    const auto all_pages = static_cast<std::int32_t>(pages * std::max(1, options.sequences));
    estimate.cache = ops.kv_bytes(kv, all_pages, options.kv_format);
    const std::int64_t rows = std::max(options.prefill_rows, options.decode_rows);
    estimate.activations = ops.workspace_bytes(s, static_cast<std::int32_t>(rows), options.decode_rows) +
                           ops.expanded_kv_bytes(kv, all_pages, options.kv_format);
    return estimate;
}

std::int64_t available_memory() { return std::min({machine_available(), group_available(), address_space()}); }

std::string format_bytes(std::int64_t bytes) {
    constexpr const char* kUnits[] = {"bytes", "KiB", "MiB", "GiB", "TiB"};
    double value = static_cast<double>(bytes);
    int unit = 0;
    while (value >= 1024.0 && unit < 4) {
        value /= 1024.0;
        ++unit;
    }
    char text[48];
    std::snprintf(text, sizeof text, unit == 0 ? "%.0f %s" : "%.1f %s", value, kUnits[unit]);
    return text;
}

void require_memory(const MemoryEstimate& estimate, std::int64_t available, const std::string& what,
                    const std::string& whose) {
    if (estimate.total() <= available) return;
    throw Error(what + " needs " + format_bytes(estimate.total()) + " of " + whose + " (weights " +
                format_bytes(estimate.weights) + ", cache " + format_bytes(estimate.cache) + ", working memory " +
                format_bytes(estimate.activations) + ") but " + format_bytes(available) +
                " are available; use a smaller model or a shorter --context");
}

}  // namespace foresay::speculative
