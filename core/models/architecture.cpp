#include "core/models/architecture.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

std::string supported() {
    std::string list;
    for (const Architecture* architecture : architectures()) {
        if (!list.empty()) list += ", ";
        list += architecture->name;
    }
    return list;
}

void require(bool condition, const std::string& path, const std::string& what) {
    if (!condition) throw Error(path + ": " + what);
}

std::string number(std::int64_t value) { return std::to_string(value); }

}  // namespace

const TensorNames& common_gguf_names() {
    static const TensorNames names = {
        "token_embd.weight",       "output_norm.weight",        "output.weight",
        "blk.{}.attn_norm.weight", "blk.{}.attn_q.weight",      "blk.{}.attn_k.weight",
        "blk.{}.attn_v.weight",    "blk.{}.attn_q.bias",        "blk.{}.attn_k.bias",
        "blk.{}.attn_v.bias",      "blk.{}.attn_output.weight", "blk.{}.attn_output.bias",
        "blk.{}.ffn_norm.weight",  "blk.{}.ffn_gate.weight",    "blk.{}.ffn_up.weight",
        "blk.{}.ffn_down.weight",
    };
    return names;
}

const TensorNames& common_hf_names() {
    static const TensorNames names = {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
        "model.layers.{}.input_layernorm.weight",
        "model.layers.{}.self_attn.q_proj.weight",
        "model.layers.{}.self_attn.k_proj.weight",
        "model.layers.{}.self_attn.v_proj.weight",
        "model.layers.{}.self_attn.q_proj.bias",
        "model.layers.{}.self_attn.k_proj.bias",
        "model.layers.{}.self_attn.v_proj.bias",
        "model.layers.{}.self_attn.o_proj.weight",
        "model.layers.{}.self_attn.o_proj.bias",
        "model.layers.{}.post_attention_layernorm.weight",
        "model.layers.{}.mlp.gate_proj.weight",
        "model.layers.{}.mlp.up_proj.weight",
        "model.layers.{}.mlp.down_proj.weight",
    };
    return names;
}

std::span<const Architecture* const> architectures() {
    static const Architecture* const all[] = {&llama_architecture(), &qwen2_architecture()};
    return all;
}

const Architecture& architecture_for_gguf(std::string_view name, const std::string& path) {
    for (const Architecture* architecture : architectures()) {
        if (std::ranges::find(architecture->gguf_names, name) != architecture->gguf_names.end()) return *architecture;
    }
    throw Error(path + ": the architecture " + quote(name) + " is not supported (supported: " + supported() + ")");
}

const Architecture& architecture_for_hf(std::string_view name, const std::string& path) {
    for (const Architecture* architecture : architectures()) {
        if (std::ranges::find(architecture->hf_names, name) != architecture->hf_names.end()) return *architecture;
    }
    throw Error(path + ": the architecture " + quote(name) + " is not supported (supported: " + supported() + ")");
}

void check_config(const ModelConfig& config, const std::string& path) {
    const kernels::ModelShape& s = config.shape;
    require(s.layers > 0 && s.layers <= 1024, path, "a model of " + number(s.layers) + " layers is not possible");
    require(s.d_model > 0 && s.d_model <= 1 << 17, path, "a width of " + number(s.d_model) + " is not possible");
    require(s.d_ff > 0 && s.d_ff <= 1 << 20, path, "a feed-forward width of " + number(s.d_ff) + " is not possible");
    require(s.heads > 0 && s.heads <= 1024, path, number(s.heads) + " attention heads are not possible");
    require(s.kv_heads > 0 && s.heads % s.kv_heads == 0, path,
            number(s.heads) + " query heads cannot share " + number(s.kv_heads) + " key-value heads");
    require(s.head_dim > 0 && s.head_dim <= 1024 && s.head_dim % 2 == 0, path,
            "a head width of " + number(s.head_dim) + " is not possible");
    require(config.context_length > 0, path, "a context of " + number(config.context_length) + " is not possible");
    require(std::isfinite(config.norm_eps) && config.norm_eps >= 0.0f, path, "the norm's epsilon is not a number");
    const RopeConfig& rope = config.rope;
    require(std::isfinite(rope.theta) && rope.theta > 0.0f, path, "the rope base frequency is not a positive number");
    require(std::isfinite(rope.factor) && rope.factor > 0.0f, path, "the rope factor is not a positive number");
    if (rope.scaling == RopeScaling::llama3) {
        require(
            rope.low_freq_factor > 0.0f && rope.high_freq_factor > rope.low_freq_factor && rope.original_context > 0,
            path, "the llama3 rope scaling needs 0 < low_freq_factor < high_freq_factor and an original context");
    }
}

std::string tensor_name(const TensorNames& names, TensorRole role, std::int32_t layer) {
    std::string name(names[static_cast<std::size_t>(role)]);
    const std::size_t place = name.find("{}");
    if (place != std::string::npos) name.replace(place, 2, std::to_string(layer));
    return name;
}

TensorShape tensor_shape(const ModelConfig& config, TensorRole role) {
    const kernels::ModelShape& s = config.shape;
    const std::int64_t q = std::int64_t{s.heads} * s.head_dim;
    const std::int64_t kv = std::int64_t{s.kv_heads} * s.head_dim;
    switch (role) {
        case TensorRole::embedding:
        case TensorRole::head:
            return {s.vocab, s.d_model};
        case TensorRole::q:
            return {q, s.d_model};
        case TensorRole::k:
        case TensorRole::v:
            return {kv, s.d_model};
        case TensorRole::q_bias:
            return {1, q};
        case TensorRole::k_bias:
        case TensorRole::v_bias:
            return {1, kv};
        case TensorRole::attention_out:
            return {s.d_model, q};
        case TensorRole::gate:
        case TensorRole::up:
            return {s.d_ff, s.d_model};
        case TensorRole::down:
            return {s.d_model, s.d_ff};
        case TensorRole::output_norm:
        case TensorRole::attention_norm:
        case TensorRole::mlp_norm:
        case TensorRole::attention_out_bias:
            return {1, s.d_model};
    }
    return {};
}

std::vector<float> inverse_frequencies(const RopeConfig& rope, std::int32_t head_dim,
                                       const std::vector<float>& factors) {
    constexpr double kTwoPi = 6.283185307179586;
    std::vector<float> out(static_cast<std::size_t>(head_dim / 2));
    for (std::size_t i = 0; i < out.size(); ++i) {
        double f = 1.0 / std::pow(static_cast<double>(rope.theta), 2.0 * static_cast<double>(i) / head_dim);
        if (!factors.empty()) f /= factors[i];
        if (rope.scaling == RopeScaling::linear) f /= rope.factor;
        if (rope.scaling == RopeScaling::llama3) {
            const double wavelength = kTwoPi / f;
            const double original = rope.original_context;
            if (wavelength > original / rope.low_freq_factor) {
                f /= rope.factor;
            } else if (wavelength > original / rope.high_freq_factor) {
                const double smooth = (original / wavelength - rope.low_freq_factor) /
                                      (static_cast<double>(rope.high_freq_factor) - rope.low_freq_factor);
                f = (1.0 - smooth) * f / rope.factor + smooth * f;
            }
        }
        out[i] = static_cast<float>(f);
    }
    return out;
}

}  // namespace foresay::core
