// core/models/model_config.h: the configuration of a model, known before any weight is read.
//
// Threads:  any; plain data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "kernels/ops.h"

namespace foresay::core {

enum class RopeScaling : std::uint8_t { none, linear, llama3, yarn, longrope };

struct RopeConfig {
    float theta = 10000.0f;
    kernels::RopePairs pairs = kernels::RopePairs::half_split;  // none: the layer has no rope
    RopeScaling scaling = RopeScaling::none;
    float factor = 1.0f;                   // linear, llama3, yarn: positions are divided by it
    float low_freq_factor = 1.0f;          // llama3
    float high_freq_factor = 4.0f;         // llama3
    std::int32_t original_context = 8192;  // llama3, yarn, longrope: context length before the scaling
    std::int32_t dims = 0;                 // values of a head that rotate; 0: all. The others pass through
    std::int32_t spread_dims = 0;          // 0, or values of a head that rotate, at the frequencies of the whole head
    float beta_fast = 32.0f, beta_slow = 1.0f;   // yarn: turns within original_context where the ramp begins and ends
    bool truncate = true;                        // yarn: the ends of the ramp are whole numbers
    float attention_factor = 0.0f;               // yarn, longrope: multiplies cos and sin; 0: by formula
    float mscale = 0.0f, mscale_all_dim = 0.0f;  // yarn: other formulas for the attention factor
    std::vector<float> factors;                  // divide the frequencies, one per pair; empty: none
    std::vector<float> short_factors,
        long_factors;  // longrope: for contexts up to original_context, and for longer ones
};

// What may differ from layer to layer.
struct LayerConfig {
    std::int32_t heads = 0, kv_heads = 0, head_dim = 0, d_ff = 0;
    std::int32_t window = 0;  // attends to this many positions; 0: to all
    RopeConfig rope;
    bool experts = false;  // a mixture of experts, not (only) a feed-forward network
    std::int32_t kv = 0;   // its layer in the KV cache
    bool own_kv = true;    // false: attends to the keys and values that an earlier layer writes
    bool v_is_k = false;   // V is K before its norm and rope
};

struct ExpertConfig {
    std::int32_t count = 0, used = 0, d_ff = 0;  // count 0: no experts
    std::int32_t shared_ff = 0;                  // feed-forward width of the shared experts together; 0: none
    kernels::Gating gating = kernels::Gating::softmax;
    bool renormalize = false;
    float scale = 1.0f;
    std::int32_t groups = 1, groups_used = 1;
    bool router_bias = false;  // a bias that changes the scores
    bool choice_bias = false;  // a bias that changes the choice only
    bool biases = false;       // the experts' projections have biases
};

struct ModelConfig {
    std::string architecture;         // "llama", "qwen2": the name of its file in core/models
    std::string name;                 // as the file gives it; may be empty
    std::string file_type;            // the quantisation type that most weights have: "q4_k", "bf16"
    kernels::ModelShape shape;        // vocab: rows of the embedding table and of the LM head
    std::int32_t context_length = 0;  // positions that the model was trained for
    float norm_eps = 1e-6f;
    RopeConfig rope;                  // of every layer without a LayerConfig
    bool tied_head = false;           // the LM head is the embedding table
    bool qkv_bias = false;            // Q, K and V have biases
    bool attention_out_bias = false;  // the output projection of attention has a bias
    bool mlp_bias = false;            // the projections of the feed-forward network have biases
    bool head_norms = false;          // Q and K are normed
    bool norm_plus_one = false;       // norms multiply by 1 + weight
    kernels::NormKind norm_kind = kernels::NormKind::rms;
    bool norm_bias = false;
    kernels::Activation activation = kernels::Activation::silu;
    float activation_limit = 0.0f;
    float attention_scale = 0.0f;  // of the scores; 0: one over the square root of the head width
    float attention_cap = 0.0f, logit_cap = 0.0f;
    float embedding_scale = 1.0f, residual_scale = 1.0f, logit_scale = 1.0f;
    std::int32_t window = 0;  // of every layer without a LayerConfig
    kernels::QueryTemperature temperature;
    ExpertConfig experts;
    std::vector<LayerConfig> layers;  // empty: all layers are alike
    // Of each layer, the number of its backend in a list of them (core/models/layer_split.h), ascending; empty: there
    // is one backend. shape.devices goes with it.
    std::vector<std::int32_t> devices;
    std::int32_t extra_layers = 0;   // after them in the file, for multi-token prediction; not used
    std::vector<std::string> notes;  // what of the file is not used, one sentence each, for the user
};

LayerConfig layer_config(const ModelConfig& config, std::int32_t layer);
// The shape of one layer: the model's, with the layer's own heads and feed-forward width.
kernels::ModelShape layer_shape(const ModelConfig& config, std::int32_t layer);
// The keys and values of all layers that have their own.
kernels::KvShape kv_shape(const ModelConfig& config);
// How many positions a row attends to at most, in any layer; 0: all, in one layer at least.
std::int32_t widest_window(const ModelConfig& config);
// Makes a LayerConfig of each layer, for a family whose layers differ.
void spell_out_layers(ModelConfig& config);
// Sets the widths of config.shape to the largest of any layer.
void widen_shape(ModelConfig& config);

// A rope as kernels take it, for a context of `context` positions.
struct RopeTable {
    std::vector<float> inverse_frequency;  // of each pair that rotates, with scaling applied
    float attention_factor = 1.0f;
};
RopeTable rope_table(const RopeConfig& rope, std::int32_t head_dim, std::int32_t context);
// Whether the table depends on whether the context is longer than rope.original_context.
inline bool depends_on_context(const RopeConfig& rope) { return rope.scaling == RopeScaling::longrope; }

}  // namespace foresay::core
