#include "app/model_report.h"

#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "core/models/shapes.h"
#include "core/weights/formats/formats.h"
#include "core/weights/gguf.h"
#include "core/weights/safetensors.h"
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

}  // namespace

std::string field(const std::string& name, const std::string& value) {
    constexpr std::size_t kColumn = 34;
    return "  " + name + std::string(name.size() < kColumn ? kColumn - name.size() : 1, ' ') + value + "\n";
}

void describe_weights(core::ModelSource& source, ModelReport& report) {
    report.config = source.config();
    report.encodings = core::encodings_of(source);
    const auto all = static_cast<double>(core::parameter_count(source.config()));
    const auto active = static_cast<double>(core::active_parameter_count(source.config()));
    if (all > 0.0) {
        report.read_per_token = static_cast<std::int64_t>(static_cast<double>(source.weight_bytes()) * active / all);
    }
    report.quantised_by = source.gguf() != nullptr ? maker_of(*source.gguf()) : maker_of(source.folder());
}

std::string weights_text(const ModelReport& report) {
    std::string out = "weights\n";
    std::int64_t stored = 0, kept = 0;
    for (const core::Encoding& one : report.encodings) {
        stored += one.stored_bytes;
        kept += one.kept_bytes;
        std::string text = std::to_string(one.matrices) + (one.matrices == 1 ? " tensor, " : " tensors, ") +
                           speculative::format_bytes(one.stored_bytes) + " (" + bits(one) + " bits)";
        if (!one.kept.empty()) text += "; in memory " + one.kept + ", " + speculative::format_bytes(one.kept_bytes);
        out += field(one.name, text);
    }
    if (kept != stored) {
        out += field("in the file, in memory", speculative::format_bytes(stored) + ", " +
                                                   speculative::format_bytes(kept) + " (no number changes)");
    }
    out += field("read per token", speculative::format_bytes(report.read_per_token));
    constexpr std::int64_t kPages = 1024 / kernels::kPagePositions;
    std::string cache;
    for (const auto& [format, bytes] : report.cache_page) {
        cache += (cache.empty() ? "" : ", ") + format + " " + speculative::format_bytes(kPages * bytes);
    }
    if (!cache.empty()) out += field("KV cache of 1024 positions", cache);
    if (!report.quantised_by.empty()) out += field("quantised by", report.quantised_by);
    return out;
}

std::string to_json(const ModelReport& report) {
    nlohmann::json object = {{"path", report.path},
                             {"runs", report.problem.empty()},
                             {"backend", report.backend},
                             {"problem", report.problem}};
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
        object["read_per_token"] = report.read_per_token;
        object["cache_per_position"] = nlohmann::json::object();
        for (const auto& [format, bytes] : report.cache_page) {
            object["cache_per_position"][format] = static_cast<double>(bytes) / kernels::kPagePositions;
        }
        object["weights"] = nlohmann::json::array();
        for (const core::Encoding& one : report.encodings) {
            object["weights"].push_back(
                {{"encoding", one.name},
                 {"tensors", one.matrices},
                 {"values", one.values},
                 {"bytes", one.stored_bytes},
                 {"in_memory", one.kept.empty() ? nlohmann::json(nullptr) : nlohmann::json(one.kept)},
                 {"memory_bytes", one.kept_bytes}});
        }
    }
    return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n";
}

}  // namespace foresay::app
