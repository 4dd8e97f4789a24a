#include "core/models/read_config.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core/models/limits.h"
#include "core/models/plausible.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

// A number that GGUF may give once or per layer. Layers that differ are the family's business.
std::int32_t largest(Keys& keys, const Architecture& family, std::string_view gguf, std::string_view hf,
                     std::size_t layers, std::int32_t fallback = -1) {
    if (fallback >= 0 && !keys.has(gguf, hf)) return fallback;
    if (!keys.is_array(gguf, hf)) return keys.count(gguf, hf);
    const std::vector<std::int32_t> values = keys.counts(gguf, hf, layers);
    const auto [low, high] = std::ranges::minmax(values);
    if (low != high && !family.layers_differ) {
        keys.refuse(gguf, hf, "differs between layers, which is not supported for this architecture");
    }
    return high;
}

// Refuses what no model has before anything is made of that size; check_config() looks at all layers later.
void at_most(Keys& keys, std::int32_t value, std::int32_t most, std::string_view gguf, std::string_view hf) {
    if (value > most) keys.refuse(gguf, hf, "is " + std::to_string(value) + ", which is not possible");
}

void read_gguf_rope(Keys& keys, RopeConfig& rope, std::int32_t head_dim) {
    rope.theta = keys.positive_or("rope.freq_base", {}, 10000.0f);
    const std::string type = keys.text_or("rope.scaling.type", {}, "none");
    const float old_factor = keys.number_or("rope.scale_linear", {}, 1.0f);
    const float factor = keys.number_or("rope.scaling.factor", {}, old_factor);
    rope.dims = keys.count_or("rope.dimension_count", {}, head_dim);
    rope.original_context = keys.count_or("rope.scaling.original_context_length", {}, rope.original_context);
    const float magnitude = keys.number_or("rope.scaling.attn_factor", {}, 0.0f);
    const float whole_magnitude = keys.number_or("rope.scaling.yarn_attn_factor", {}, 0.0f);  // of OLMo 3
    const auto pairs = static_cast<std::size_t>(rope.dims / 2);
    rope.long_factors = keys.vector("rope_factors_long", pairs);
    rope.short_factors = keys.vector("rope_factors_short", pairs);
    if (!rope.long_factors.empty() && !rope.short_factors.empty()) {
        rope.scaling = RopeScaling::longrope;
        rope.original_context = keys.count("rope.scaling.original_context_length", {});
        rope.factor = static_cast<float>(keys.count("context_length", {})) / static_cast<float>(rope.original_context);
        rope.attention_factor = magnitude;
        return;
    }
    rope.factors = keys.vector("rope_freqs", pairs);
    for (const float factor : rope.factors) {
        plausible_positive(factor, keys.path(), "a factor in the tensor rope_freqs.weight");
    }
    if (type == "linear" || (type == "none" && old_factor != 1.0f)) {
        rope.scaling = RopeScaling::linear;
        rope.factor = factor == 0.0f ? 1.0f : factor;
    } else if (type == "yarn") {
        rope.scaling = RopeScaling::yarn;
        rope.factor = factor;
        rope.original_context = keys.count("rope.scaling.original_context_length", {});
        rope.beta_fast = keys.number_or("rope.scaling.yarn_beta_fast", {}, 32.0f);
        rope.beta_slow = keys.number_or("rope.scaling.yarn_beta_slow", {}, 1.0f);
        rope.mscale_all_dim = keys.number_or("rope.scaling.yarn_log_multiplier", {}, 0.0f);
        if (rope.mscale_all_dim > 0.0f) rope.mscale = 1.0f;
        if (keys.number_or("rope.scaling.yarn_ext_factor", {}, 1.0f) != 1.0f) {
            keys.refuse("rope.scaling.yarn_ext_factor", {}, "is not 1, which is not supported");
        }
        rope.attention_factor = whole_magnitude;
        if (magnitude > 0.0f) {
            rope.attention_factor =
                magnitude * static_cast<float>(0.1 * std::log(static_cast<double>(std::max(factor, 1.0f))) + 1.0);
        }
    } else if (type != "none") {
        keys.refuse("rope.scaling.type", {},
                    "is " + quote(type) + ", which is not supported (supported: none, linear, yarn, longrope)");
    }
}

constexpr std::string_view kRopeKeys[] = {
    "rope_theta",
    "rope_type",
    "type",
    "factor",
    "low_freq_factor",
    "high_freq_factor",
    "beta_fast",
    "beta_slow",
    "truncate",
    "mscale",
    "mscale_all_dim",
    "attention_factor",
    "short_factor",
    "long_factor",
    "short_mscale",
    "long_mscale",
    "llama_4_scaling_beta",
    "partial_rotary_factor",
    "full_attention",
    "sliding_attention",
    "original_max_position_embeddings",
    "max_position_embeddings",
    "finetuned",
};

void read_hf_rope(Keys& keys, RopeConfig& rope, std::int32_t head_dim, std::string_view table_name) {
    for (const std::string_view object : {"rope_parameters", "rope_scaling"}) {
        if (keys.has({}, object) && !keys.is_object(object)) keys.refuse({}, object, "is not an object");
    }
    const bool now = keys.is_object("rope_parameters");
    std::string object = now ? "rope_parameters" : "rope_scaling";
    if (now && !table_name.empty() && keys.is_object(object + "." + std::string(table_name))) {
        object += "." + std::string(table_name);
    }
    const std::string table = object + ".";
    for (const std::string& member : keys.members(object)) {
        if (std::ranges::find(kRopeKeys, member) == std::end(kRopeKeys)) {
            keys.refuse({}, table + member, "is not known and could change the results; use a newer foresay");
        }
    }
    const auto number = [&](const char* key, float fallback) { return keys.number_or({}, table + key, fallback); };
    const auto positive = [&](const char* key, float fallback) { return keys.positive_or({}, table + key, fallback); };
    const auto required = [&](const char* key) {
        return plausible_positive(keys.number({}, table + key), keys.path(), keys.spelled({}, table + key));
    };
    rope.theta = keys.positive_or({}, table + "rope_theta", keys.positive_or({}, "rope_theta", 10000.0f));
    const float partial = number("partial_rotary_factor", keys.number_or({}, "partial_rotary_factor", 1.0f));
    if (!(partial > 0.0f && partial <= 1.0f)) keys.refuse({}, "partial_rotary_factor", "is not between 0 and 1");
    rope.dims = static_cast<std::int32_t>(static_cast<float>(head_dim) * partial);
    const auto pairs = static_cast<std::size_t>(rope.dims / 2);
    const std::int32_t longest = keys.count_or({}, "max_position_embeddings", 0);
    const auto original = [&] {
        const std::int32_t outside = keys.count_or({}, "original_max_position_embeddings", longest);
        return keys.count_or({}, table + "original_max_position_embeddings", outside);
    };
    const std::string type = keys.text_or({}, table + "rope_type", keys.text_or({}, table + "type", "default"));
    if (type == "default" || type == "none") return;
    rope.attention_factor = number("attention_factor", 0.0f);
    if (type == "linear") {
        rope.scaling = RopeScaling::linear;
        rope.factor = required("factor");
    } else if (type == "llama3") {
        rope.scaling = RopeScaling::llama3;
        rope.factor = required("factor");
        rope.low_freq_factor = required("low_freq_factor");
        rope.high_freq_factor = required("high_freq_factor");
        rope.original_context = keys.count({}, table + "original_max_position_embeddings");
    } else if (type == "yarn") {
        rope.scaling = RopeScaling::yarn;
        rope.original_context = original();
        rope.factor = positive("factor", 0.0f);
        if (rope.factor == 0.0f) {
            rope.factor = static_cast<float>(longest) / static_cast<float>(std::max(rope.original_context, 1));
        }
        rope.beta_fast = number("beta_fast", 32.0f);
        rope.beta_slow = number("beta_slow", 1.0f);
        rope.truncate = keys.flag_or({}, table + "truncate", true);
        rope.mscale = number("mscale", 0.0f);
        rope.mscale_all_dim = number("mscale_all_dim", 0.0f);
    } else if (type == "longrope" || type == "su") {
        rope.scaling = RopeScaling::longrope;
        rope.original_context = original();
        rope.factor = static_cast<float>(longest) / static_cast<float>(std::max(rope.original_context, 1));
        rope.short_factors = keys.numbers({}, table + "short_factor", pairs);
        rope.long_factors = keys.numbers({}, table + "long_factor", pairs);
    } else if (type == "proportional") {
        rope.spread_dims = 2 * static_cast<std::int32_t>(partial * static_cast<float>(head_dim) / 2.0f);
        rope.dims = head_dim;
        rope.factor = positive("factor", 1.0f);
        if (rope.factor != 1.0f) rope.scaling = RopeScaling::linear;
    } else {
        keys.refuse({}, table + "rope_type",
                    "is " + quote(type) +
                        ", which is not supported (supported: default, linear, llama3, yarn, longrope, proportional)");
    }
}

}  // namespace

RopeConfig read_rope(Keys& keys, std::int32_t head_dim, kernels::RopePairs pairs, std::string_view table) {
    RopeConfig rope;
    rope.pairs = pairs;
    if (keys.gguf()) {
        read_gguf_rope(keys, rope, head_dim);
    } else {
        read_hf_rope(keys, rope, head_dim, table);
    }
    if (rope.dims == head_dim) rope.dims = 0;
    return rope;
}

kernels::Activation activation_by_name(Keys& keys, std::string_view key, std::string_view fallback) {
    const std::string name = keys.text_or({}, key, fallback);
    if (name == "silu" || name == "swish") return kernels::Activation::silu;
    if (name == "gelu_pytorch_tanh" || name == "gelu_new" || name == "gelu_fast") return kernels::Activation::gelu_tanh;
    if (name == "gelu") return kernels::Activation::gelu;
    throw Error(keys.path() + ": the activation " + quote(name) +
                " is not supported (supported: silu, gelu, gelu_pytorch_tanh)");
}

std::vector<bool> sliding_layers(Keys& keys, const ModelConfig& config, std::int32_t period) {
    const auto layers = static_cast<std::size_t>(config.shape.layers);
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    if (keys.has(kPattern, {}) && keys.is_array(kPattern, {})) return keys.flags(kPattern, {}, layers);
    std::vector<bool> sliding(layers, true);
    if (keys.has({}, "layer_types")) {
        const std::vector<std::string> types = keys.texts("layer_types", layers);
        for (std::size_t i = 0; i < layers; ++i) {
            if (types[i] != "sliding_attention" && types[i] != "full_attention") {
                keys.refuse({}, "layer_types", "has " + quote(types[i]) + ", which is not supported");
            }
            sliding[i] = types[i] == "sliding_attention";
        }
        keys.ignore({"sliding_window_pattern", "_sliding_window_pattern"});
        return sliding;
    }
    period = keys.count_or(kPattern, "sliding_window_pattern", period);
    if (period == 0) keys.refuse(kPattern, "sliding_window_pattern", "is 0");
    for (std::size_t i = 0; i < layers && period > 1; ++i) {
        sliding[i] = (static_cast<std::int32_t>(i) + 1) % period != 0;
    }
    return sliding;
}

void set_sliding(ModelConfig& config, const std::vector<bool>& sliding) {
    spell_out_layers(config);
    for (std::size_t i = 0; i < sliding.size(); ++i) config.layers[i].window = sliding[i] ? config.window : 0;
}

void read_experts(Keys& keys, ModelConfig& config, std::string_view hf_count) {
    ExpertConfig& e = config.experts;
    // Published files of some families say num_experts; transformers 5 writes num_local_experts.
    if (hf_count == "num_local_experts" && !keys.has("expert_count", hf_count)) hf_count = "num_experts";
    e.count = keys.count("expert_count", hf_count);
    if (e.count < 2)
        keys.refuse("expert_count", hf_count, "is " + std::to_string(e.count) + "; a mixture has two experts or more");
    at_most(keys, e.count, kMostExperts, "expert_count", hf_count);
    e.used = keys.count("expert_used_count", "num_experts_per_tok");
    if (e.used < 1 || e.used > e.count) {
        keys.refuse("expert_used_count", "num_experts_per_tok",
                    "is " + std::to_string(e.used) + " of " + std::to_string(e.count) + " experts");
    }
    const bool own_width = keys.has("expert_feed_forward_length", "moe_intermediate_size");
    e.d_ff = own_width ? keys.count("expert_feed_forward_length", "moe_intermediate_size") : config.shape.d_ff;
    at_most(keys, e.d_ff, kMostFeedForward, "expert_feed_forward_length", "moe_intermediate_size");
    const std::int32_t gating = keys.count_or("expert_gating_func", {}, 0);
    if (gating > 3) keys.refuse("expert_gating_func", {}, "is " + std::to_string(gating) + ", which is not known");
    if (gating == 1) e.gating = kernels::Gating::softmax;
    if (gating == 2) e.gating = kernels::Gating::sigmoid;
    if (gating == 3) e.gating = kernels::Gating::softmax_chosen;
    e.renormalize = keys.flag_or("expert_weights_norm", {}, e.renormalize);
    e.scale = keys.number_or("expert_weights_scale", {}, e.scale);
    if (e.scale == 0.0f) e.scale = 1.0f;
    e.groups = std::max(1, keys.count_or("expert_group_count", "n_group", 1));
    e.groups_used = std::max(1, keys.count_or("expert_group_used_count", "topk_group", 1));
    if (e.count % e.groups != 0) {
        keys.refuse(
            "expert_group_count", "n_group",
            "is " + std::to_string(e.groups) + ", which does not divide " + std::to_string(e.count) + " experts");
    }
    if (e.groups_used > e.groups || e.count / e.groups * e.groups_used < e.used) {
        keys.refuse("expert_group_used_count", "topk_group",
                    "is " + std::to_string(e.groups_used) + " of " + std::to_string(e.groups) + " groups of " +
                        std::to_string(e.count / e.groups) + " experts, and each token needs " +
                        std::to_string(e.used));
    }
    kernels::ModelShape& s = config.shape;
    s.experts = e.count;
    s.experts_used = e.used;
    s.expert_ff = e.d_ff;
}

ModelConfig read_config(Keys& keys, const Architecture& family) {
    ModelConfig config;
    config.architecture = family.name;
    kernels::ModelShape& s = config.shape;
    s.layers = keys.count("block_count", "num_hidden_layers");
    // GGUF counts the layers for multi-token prediction, config.json does not.
    const std::int32_t extra = keys.count_or("nextn_predict_layers", "num_nextn_predict_layers", 0);
    if (keys.gguf()) s.layers -= std::min(extra, s.layers);
    config.extra_layers = std::min(extra, kMostLayers);
    at_most(keys, s.layers, kMostLayers, "block_count", "num_hidden_layers");
    const auto layers = static_cast<std::size_t>(s.layers);
    s.d_model = keys.count("embedding_length", "hidden_size");
    const bool hf = !keys.gguf();
    s.heads = largest(keys, family, "attention.head_count", "num_attention_heads", layers,
                      hf && family.hf_heads > 0 ? family.hf_heads : -1);
    if (s.heads == 0) keys.refuse("attention.head_count", "num_attention_heads", "is 0");
    s.kv_heads = largest(keys, family, "attention.head_count_kv", "num_key_value_heads", layers,
                         hf && family.hf_kv_heads > 0 ? family.hf_kv_heads : s.heads);
    s.d_ff = largest(keys, family, "feed_forward_length", "intermediate_size", layers);
    s.head_dim = keys.count_or("attention.key_length", "head_dim",
                               hf && family.hf_head_dim > 0 ? family.hf_head_dim : s.d_model / s.heads);
    if (keys.count_or("attention.value_length", {}, s.head_dim) != s.head_dim) {
        keys.refuse("attention.value_length", {}, "differs from the width of keys, which is not supported");
    }
    at_most(keys, s.d_model, kMostWidth, "embedding_length", "hidden_size");
    at_most(keys, s.heads, kMostHeads, "attention.head_count", "num_attention_heads");
    at_most(keys, s.d_ff, kMostFeedForward, "feed_forward_length", "intermediate_size");
    at_most(keys, s.head_dim, kMostHeadWidth, "attention.key_length", "head_dim");
    config.context_length = keys.count_or("context_length", "max_position_embeddings", family.hf_context_length);
    config.norm_eps = keys.epsilon_or("attention.layer_norm_rms_epsilon", "rms_norm_eps", 1e-6f);
    if (keys.gguf()) {
        config.tied_head = !keys.has_tensor(-1, "output");
    } else {
        const bool tied = keys.flag_or({}, "tie_word_embeddings", family.hf_tied);
        config.tied_head = tied && !keys.has_tensor(-1, "output");
        if (keys.has({}, "hidden_act")) config.activation = activation_by_name(keys, "hidden_act", "silu");
    }
    config.rope = read_rope(keys, s.head_dim, keys.gguf() ? family.gguf_rope : family.hf_rope);
    if (family.read != nullptr) family.read(keys, config);
    widen_shape(config);
    keys.refuse_unknown();
    return config;
}

}  // namespace foresay::core
