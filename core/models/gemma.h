// core/models/gemma.h: what the generations of Gemma share.
#pragma once

#include <cmath>
#include <cstring>

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {

// Gemma 2 and 3.
inline constexpr HfName kGemmaHfTensors[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

// The factor of embeddings, the square root of the width, rounded to bfloat16 as where the models were trained.
inline float gemma_embedding_scale(std::int32_t width) {
    const float root = std::sqrt(static_cast<float>(width));
    std::uint32_t bits;
    std::memcpy(&bits, &root, sizeof bits);
    bits = (bits + 0x7fffu + (bits >> 16 & 1u)) & 0xffff0000u;
    float rounded;
    std::memcpy(&rounded, &bits, sizeof rounded);
    return rounded;
}

// Embeddings, norms (GGUF has 1 added to their weights), activation and soft caps.
inline void read_gemma(Keys& keys, ModelConfig& config) {
    if (keys.flag_or({}, "use_bidirectional_attention", false)) {
        keys.refuse({}, "use_bidirectional_attention", "is true: only causal models are supported");
    }
    config.embedding_scale = gemma_embedding_scale(config.shape.d_model);
    config.norm_plus_one = !keys.gguf();
    config.activation = activation_by_name(keys, "hidden_activation", "gelu_pytorch_tanh");
    keys.ignore({"hidden_act"});  // hidden_activation counts
    config.attention_cap = keys.number_or("attn_logit_softcapping", "attn_logit_softcapping", 0.0f);
    config.logit_cap = keys.number_or("final_logit_softcapping", "final_logit_softcapping", 0.0f);
    config.window = keys.count_or("attention.sliding_window", "sliding_window", 4096);
    if (config.window == 0) keys.refuse("attention.sliding_window", "sliding_window", "is 0");
}

// The scale of scores. GGUF files lack query_pre_attn_scalar: the models of 27B, which have `wide` layers, take the
// width of a head as if heads divided the model's width.
inline void read_gemma_scale(Keys& keys, ModelConfig& config, std::int32_t wide) {
    const kernels::ModelShape& s = config.shape;
    const std::int32_t usual = s.layers == wide ? s.d_model / s.heads : s.head_dim;
    const float scalar = keys.gguf() ? static_cast<float>(usual) : keys.number_or({}, "query_pre_attn_scalar", 256.0f);
    if (!(scalar > 0.0f)) keys.refuse({}, "query_pre_attn_scalar", "is not positive");
    config.attention_scale = keys.number_or("attention.scale", {}, 1.0f / std::sqrt(scalar));
}

inline void add_gemma_layer(OpMaker& maker, std::int32_t i) {
    maker.add_attention(i, "attn_norm", "post_attention_norm");
    maker.add_mlp(i, "ffn_norm", "post_ffw_norm");
}

}  // namespace foresay::core
