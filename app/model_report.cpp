#include "app/model_report.h"

#include <algorithm>
#include <cstdio>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "base/error.h"
#include "core/models/shapes.h"
#include "core/weights/formats/formats.h"
#include "core/weights/gguf.h"
#include "core/weights/safetensors.h"
#include "engine/bandwidth.h"
#include "engine/measured_times.h"
#include "kernels/quant/packed_panels.h"
#include "speculative/memory_estimate.h"

namespace foresay::app {
namespace {

// What a GGUF file says about its making.
std::string maker_of(const core::GgufFile& file) {
    std::string text;
    const auto add = [&](const char* before, std::string_view key) {
        const std::string value(file.get_string_or(key, ""));
        if (!value.empty()) text += (text.empty() ? "" : "; ") + std::string(before) + value;
    };
    add("", "general.quantized_by");
    add("importance matrix ", "quantize.imatrix.file");
    add("on ", "quantize.imatrix.dataset");
    return text;
}

// What a folder says.
std::string maker_of(const std::filesystem::path& folder) {
    std::string text;
    if (folder.empty()) return text;
    const core::JsonConfig config = core::quantisation_settings(core::SafetensorsDir::open(folder));
    for (const char* key : {"quant_method", "quant_algo", "format", "checkpoint_format", "version", "producer.name",
                            "producer.version", "meta.quantizer"}) {
        try {
            if (!config.has(key)) continue;
            for (const std::string& value : config.get_strings(key)) text += (text.empty() ? "" : ", ") + value;
        } catch (const Error&) {
            continue;  // of another type: nothing to show
        }
    }
    return text;
}

// Bits per value in the file, scales and all.
std::string bits(const core::Encoding& one) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f",
                  one.values > 0 ? 8.0 * static_cast<double>(one.stored_bytes) / static_cast<double>(one.values) : 0.0);
    return text;
}

// Bytes per second; 0 where weights are not what takes the time, or there is no memory to measure with.
double bandwidth_of(kernels::Ops& ops) {
    constexpr std::int64_t kEnough = std::int64_t{1} << 30;
    if (ops.describe().name == "reference") return 0.0;
    if (ops.free_memory() < 0 && speculative::available_memory() < kEnough) return 0.0;
    return engine::read_bandwidth(ops);
}

// That a token takes on the processor, as measured with its kernels; 0: there is too little memory for that.
double seconds_of(kernels::Ops& ops, core::ModelSource& source) {
    const core::ModelBytes bytes = core::model_bytes(source);
    const core::RowTimes times = engine::measured_times(ops, source, bytes);
    return std::accumulate(times.layers.begin(), times.layers.end(), times.head);
}

}  // namespace

double predicted_seconds(std::span<const engine::PlacedLayers> placement) {
    double seconds = 0.0;
    for (const engine::PlacedLayers& part : placement) {
        if (part.count > 0 && part.seconds == 0.0) return 0.0;
        // Layers follow one another; shares of a layer are read at once.
        seconds = part.share.empty() ? seconds + part.seconds : std::max(seconds, part.seconds);
    }
    return seconds;
}

std::string field(const std::string& name, const std::string& value) {
    constexpr std::size_t kColumn = 34;
    return "  " + name + std::string(name.size() < kColumn ? kColumn - name.size() : 1, ' ') + value + "\n";
}

void describe_weights(core::ModelSource& source, ModelReport& report) {
    report.config = source.config();
    report.encodings = core::encodings_of(source);
    const auto all = static_cast<double>(core::parameter_count(source.config()));
    const auto active = static_cast<double>(core::active_parameter_count(source.config()));
    report.weight_bytes = source.weight_bytes();
    report.narrowed = core::narrowed_bytes(source);
    report.more_on_a_device = source.expanded_bytes();
    report.unpacked_on_a_device = core::unpacked_on_a_device(source);
    if (all > 0.0) report.active = active / all;
    report.quantised_by = source.gguf() != nullptr ? maker_of(*source.gguf()) : maker_of(source.folder());
}

void describe_tensors(const core::TensorTable& table, ModelReport& report) {
    std::map<std::string, core::Encoding> by_type;
    for (const core::TensorInfo& tensor : table.list()) {
        core::Encoding& one = by_type[tensor.type];
        one.name = tensor.type;
        one.matrices += 1;
        one.values += tensor.elements();
        one.stored_bytes += tensor.bytes;
    }
    report.encodings.clear();
    for (auto& [type, one] : by_type) report.encodings.push_back(std::move(one));
    std::ranges::stable_sort(report.encodings, std::ranges::greater(), &core::Encoding::stored_bytes);
}

void expect_speed(kernels::Ops& ops, core::ModelSource& source, ModelReport& report) {
    const bool list = !report.placement.empty();
    report.narrows = !list && ops.describe().name == "cpu";
    if (!list && ops.free_memory() >= 0) {
        report.on_device = report.weight_bytes + report.more_on_a_device;
        report.unpacked = report.unpacked_on_a_device;
    }
    auto bytes = static_cast<double>(report.read_per_token());
    double seconds = 0.0;
    if (list) {
        seconds = predicted_seconds(report.placement);
        bytes = 0.0;
        for (const engine::PlacedLayers& part : report.placement) {
            bytes += static_cast<double>(part.read);
            report.by_kernels |= part.by_kernels && part.count > 0;
        }
    } else if (const double measured = report.narrows ? seconds_of(ops, source) : 0.0; measured > 0.0) {
        seconds = measured;
        report.by_kernels = true;
    } else if (const double bandwidth = bandwidth_of(ops); bandwidth > 0.0) {
        seconds = bytes / bandwidth;
    }
    if (seconds <= 0.0) return;
    report.read_bandwidth = bytes / seconds;
    report.tokens_per_second = 1.0 / seconds;
}

std::string weights_text(const ModelReport& report) {
    std::string out = "weights\n";
    std::int64_t stored = 0, kept = 0;
    for (const core::Encoding& one : report.encodings) {
        stored += one.stored_bytes;
        const std::int64_t bytes = report.narrows ? one.host_bytes : one.kept_bytes;
        kept += bytes;
        std::string text = std::to_string(one.matrices) + (one.matrices == 1 ? " tensor, " : " tensors, ") +
                           speculative::format_bytes(one.stored_bytes) + " (" + bits(one) + " bits)";
        if (!one.kept.empty()) {
            text += "; in memory " + one.kept + (bytes < one.kept_bytes ? " in narrower panels, " : ", ") +
                    speculative::format_bytes(bytes);
        }
        out += field(one.name, text);
    }
    if (kept != stored) {
        out += field("in the file, in memory", speculative::format_bytes(stored) + ", " +
                                                   speculative::format_bytes(kept) + " (no number changes)");
    }
    if (report.on_device && *report.on_device != kept) {
        out += field("on the device", speculative::format_bytes(*report.on_device) + " (no number changes)");
    }
    for (const core::UnpackedMatrices& one : report.unpacked) {
        out += field("as float32 on the device",
                     std::to_string(one.matrices) + (one.matrices == 1 ? " matrix, " : " matrices, ") +
                         speculative::format_bytes(one.bytes) + ", such as " + one.example + ": " + one.reason);
    }
    out += field("read per token", speculative::format_bytes(report.read_per_token()));
    if (report.tokens_per_second > 0.0) {
        char text[96];
        std::snprintf(text, sizeof text,
                      report.by_kernels ? "about %.*f tokens per second: kernels read weights at %.1f GB/s"
                                        : "%.*f tokens per second at most: memory is read at %.1f GB/s",
                      report.tokens_per_second < 10.0 ? 1 : 0, report.tokens_per_second, report.read_bandwidth / 1e9);
        out += field("expected speed", text);
    }
    constexpr std::int64_t kPages = 1024 / kernels::kPagePositions;
    std::string cache;
    for (const auto& [format, bytes] : report.cache_page) {
        cache += (cache.empty() ? "" : ", ") + format + " " + speculative::format_bytes(kPages * bytes);
    }
    if (!cache.empty()) out += field("KV cache of 1024 positions", cache);
    if (!report.quantised_by.empty()) out += field("quantised by", report.quantised_by);
    return out;
}

std::string placement_text(const ModelReport& report) {
    std::string out;
    for (const engine::PlacedLayers& part : report.placement) {
        const std::string layers = part.count == 0   ? "no layers"
                                   : part.count == 1 ? "layer " + std::to_string(part.first)
                                                     : "layers " + std::to_string(part.first) + "-" +
                                                           std::to_string(part.first + part.count - 1);
        out += field("on " + part.device, (part.share.empty() ? layers : part.share) + ", " +
                                              speculative::format_bytes(part.bytes) + " of " +
                                              speculative::format_bytes(part.memory) + " that are free");
    }
    return out;
}

std::string to_json(const ModelReport& report) {
    nlohmann::json object = {{"path", report.path},
                             {"runs", report.problem.empty()},
                             {"backend", report.backend},
                             {"problem", report.problem}};
    for (const engine::PlacedLayers& part : report.placement) {
        object["devices"].push_back({{"device", part.device},
                                     {"first_layer", part.first},
                                     {"layers", part.count},
                                     {"bytes", part.bytes},
                                     {"free_bytes", part.memory},
                                     {"bytes_per_token", part.read}});
        if (!part.share.empty()) object["devices"].back()["share"] = part.share;
    }
    if (report.config) {
        const core::ModelConfig& config = *report.config;
        const kernels::ModelShape& shape = config.shape;
        object["architecture"] = config.architecture;
        object["name"] = config.name;
        object["layers"] = shape.layers;
        object["width"] = shape.d_model;
        object["feed_forward"] = shape.d_ff;
        object["heads"] = shape.heads;
        object["kv_heads"] = shape.kv_heads;
        object["head_width"] = shape.head_dim;
        object["experts"] = config.experts.count;
        object["experts_used"] = config.experts.used;
        object["vocabulary"] = shape.vocab;
        object["context"] = config.context_length;
        object["notes"] = config.notes;
        object["quantised_by"] = report.quantised_by;
        object["read_per_token"] = report.read_per_token();
        const auto or_null = [](bool known, auto value) { return known ? nlohmann::json(value) : nlohmann::json(); };
        object["device_bytes"] = or_null(report.on_device.has_value(), report.on_device.value_or(0));
        object["read_bandwidth"] = or_null(report.read_bandwidth > 0.0, report.read_bandwidth);
        object["expected_tokens_per_second"] = or_null(report.tokens_per_second > 0.0, report.tokens_per_second);
        object["by_kernels"] = or_null(report.tokens_per_second > 0.0, report.by_kernels);
        object["cache_per_position"] = nlohmann::json::object();
        for (const auto& [format, bytes] : report.cache_page) {
            object["cache_per_position"][format] = static_cast<double>(bytes) / kernels::kPagePositions;
        }
        for (const core::UnpackedMatrices& one : report.unpacked) {
            object["float32_on_device"].push_back(
                {{"reason", one.reason}, {"matrices", one.matrices}, {"bytes", one.bytes}, {"example", one.example}});
        }
    }
    // Also of a file that cannot run: then there is no memory that it takes.
    object["weights"] = nlohmann::json::array();
    for (const core::Encoding& one : report.encodings) {
        const bool kept = report.config.has_value();
        object["weights"].push_back(
            {{"encoding", one.name},
             {"tensors", one.matrices},
             {"values", one.values},
             {"bytes", one.stored_bytes},
             {"in_memory", one.kept.empty() ? nlohmann::json(nullptr) : nlohmann::json(one.kept)},
             {"memory_bytes",
              kept ? nlohmann::json(report.narrows ? one.host_bytes : one.kept_bytes) : nlohmann::json(nullptr)}});
    }
    return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace foresay::app
