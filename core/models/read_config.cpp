// The keys that all families share, from GGUF metadata and from config.json.

#include <algorithm>
#include <string>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/plausible.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

// A count from a file as a 32-bit number. Throws Error if it does not fit: no real model needs more.
std::int32_t narrow(std::int64_t value, const std::string& path, const std::string& key) {
    if (value < 0 || value > 0x7fffffff) {
        throw Error(path + ": " + key + " is " + std::to_string(value) + ", which is out of range");
    }
    return static_cast<std::int32_t>(value);
}

// head_count_kv and feed_forward_length may be arrays with one entry per layer; layers that differ are not supported.
std::int64_t per_model_int(const GgufFile& file, const std::string& key, std::int64_t fallback) {
    const GgufEntry* entry = file.find(key);
    if (entry == nullptr) {
        if (fallback < 0) return file.get_int(key);  // throws: the key is missing
        return fallback;
    }
    if (entry->type != GgufType::array) return file.get_int(key);
    const std::vector<std::int64_t> values = file.get_ints(key);
    if (values.empty() || std::ranges::any_of(values, [&](std::int64_t v) { return v != values.front(); })) {
        throw Error(file.path() + ": " + key + " differs between layers, which is not supported");
    }
    return values.front();
}

void read_gguf_rope(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
    RopeConfig& rope = config.rope;
    const std::string base = prefix + "rope.freq_base";
    rope.theta = plausible_positive(file.get_float_or(base, 10000.0), file.path(), base);
    const std::string type(file.get_string_or(prefix + "rope.scaling.type", "none"));
    const double factor =
        file.get_float_or(prefix + "rope.scaling.factor", file.get_float_or(prefix + "rope.scale_linear", 1.0));
    if (type == "linear" || (type == "none" && file.has(prefix + "rope.scale_linear"))) {
        rope.scaling = RopeScaling::linear;
        const std::string key =
            prefix + (file.has(prefix + "rope.scaling.factor") ? "rope.scaling.factor" : "rope.scale_linear");
        rope.factor = factor == 0.0 ? 1.0f : plausible_positive(factor, file.path(), key);
    } else if (type != "none") {
        throw Error(file.path() + ": rope scaling of type " + quote(type) +
                    " is not supported (supported: none, linear)");
    }
    const std::int64_t dims = file.get_int_or(prefix + "rope.dimension_count", config.shape.head_dim);
    if (dims != config.shape.head_dim) {
        throw Error(file.path() + ": rope over " + std::to_string(dims) + " of " +
                    std::to_string(config.shape.head_dim) + " dimensions of a head is not supported");
    }
}

void read_hf_rope(const JsonConfig& json, ModelConfig& config) {
    RopeConfig& rope = config.rope;
    for (const char* name : {"rope_parameters", "rope_scaling"}) {
        if (json.has(name)) json.require_object(name);
    }
    const std::string table = json.has("rope_parameters") ? "rope_parameters." : "rope_scaling.";
    const std::string theta = json.has(table + "rope_theta") ? table + "rope_theta" : "rope_theta";
    rope.theta = plausible_positive(json.get_float_or(theta, 10000.0), json.path(), theta);
    const auto positive = [&](const std::string& key) {
        return plausible_positive(json.get_float(table + key), json.path(), table + key);
    };
    const std::string type = json.get_string_or(table + "rope_type", json.get_string_or(table + "type", "default"));
    if (type == "linear") {
        rope.scaling = RopeScaling::linear;
        rope.factor = positive("factor");
    } else if (type == "llama3") {
        rope.scaling = RopeScaling::llama3;
        rope.factor = positive("factor");
        rope.low_freq_factor = positive("low_freq_factor");
        rope.high_freq_factor = positive("high_freq_factor");
        rope.original_context = narrow(json.get_int(table + "original_max_position_embeddings"), json.path(),
                                       table + "original_max_position_embeddings");
    } else if (type != "default") {
        throw Error(json.path() + ": rope scaling of type " + quote(type) +
                    " is not supported (supported: default, linear, llama3)");
    }
    const double partial =
        json.get_float_or(table + "partial_rotary_factor", json.get_float_or("partial_rotary_factor", 1.0));
    if (partial != 1.0) throw Error(json.path() + ": rope over a part of a head is not supported");
}

}  // namespace

ModelConfig read_gguf_config(const GgufFile& file, const Architecture& architecture) {
    const std::string prefix = std::string(file.get_string("general.architecture")) + ".";
    const auto count = [&](const std::string& key, std::int64_t value) {
        return narrow(value, file.path(), prefix + key);
    };
    ModelConfig config;
    config.architecture = architecture.name;
    config.name = file.get_string_or("general.name", "");
    kernels::ModelShape& s = config.shape;
    s.layers = count("block_count", file.get_int(prefix + "block_count"));
    s.d_model = count("embedding_length", file.get_int(prefix + "embedding_length"));
    s.heads = count("attention.head_count", per_model_int(file, prefix + "attention.head_count", -1));
    s.kv_heads = count("attention.head_count_kv", per_model_int(file, prefix + "attention.head_count_kv", s.heads));
    s.d_ff = count("feed_forward_length", per_model_int(file, prefix + "feed_forward_length", -1));
    if (s.heads == 0) throw Error(file.path() + ": " + prefix + "attention.head_count is 0");
    s.head_dim = count("attention.key_length", file.get_int_or(prefix + "attention.key_length", s.d_model / s.heads));
    if (file.get_int_or(prefix + "attention.value_length", s.head_dim) != s.head_dim) {
        throw Error(file.path() + ": keys and values of different widths are not supported");
    }
    config.context_length = count("context_length", file.get_int_or(prefix + "context_length", 2048));
    const std::string epsilon = prefix + "attention.layer_norm_rms_epsilon";
    config.norm_eps = plausible_epsilon(file.get_float_or(epsilon, 1e-6), file.path(), epsilon);
    if (file.get_int_or(prefix + "attention.sliding_window", 0) > 0) {
        throw Error(file.path() + ": sliding-window attention is not supported");
    }
    config.tied_head = !file.tensors().has(tensor_name(architecture.gguf_tensors, TensorRole::head, 0));
    config.rope.pairs = architecture.gguf_rope;
    read_gguf_rope(file, prefix, config);
    architecture.read_gguf(file, prefix, config);
    return config;
}

ModelConfig read_hf_config(const JsonConfig& json, const Architecture& architecture) {
    const auto get = [&](const char* key) { return narrow(json.get_int(key), json.path(), key); };
    const auto get_or = [&](const char* key, std::int64_t fallback) {
        return narrow(json.get_int_or(key, fallback), json.path(), key);
    };
    if (json.has("quantization_config")) {
        throw Error(json.path() +
                    ": quantised safetensors (quantization_config) are not supported; use the original "
                    "weights or a GGUF file");
    }
    ModelConfig config;
    config.architecture = architecture.name;
    config.name = json.get_string_or("_name_or_path", "");
    kernels::ModelShape& s = config.shape;
    s.layers = get("num_hidden_layers");
    s.d_model = get("hidden_size");
    s.heads = get("num_attention_heads");
    if (s.heads == 0) throw Error(json.path() + ": num_attention_heads is 0");
    s.kv_heads = get_or("num_key_value_heads", s.heads);
    s.head_dim = get_or("head_dim", s.d_model / s.heads);
    s.d_ff = get("intermediate_size");
    config.context_length = get_or("max_position_embeddings", architecture.hf_context_length);
    config.norm_eps = plausible_epsilon(json.get_float_or("rms_norm_eps", 1e-6), json.path(), "rms_norm_eps");
    config.tied_head = json.get_bool_or("tie_word_embeddings", false);
    const std::string activation = json.get_string_or("hidden_act", "silu");
    if (activation != "silu") {
        throw Error(json.path() + ": the activation " + quote(activation) + " is not supported (supported: silu)");
    }
    config.rope.pairs = architecture.hf_rope;
    read_hf_rope(json, config);
    architecture.read_hf(json, config);
    return config;
}

}  // namespace foresay::core
