// core/models/glm4moe.cpp: GLM-4.5 and 4.6: experts chosen by sigmoids and a correction, with a shared one beside them;
// the first layers are dense.

#include "core/models/limits.h"
#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"glm4moe"};
constexpr std::string_view kHfNames[] = {"Glm4MoeForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_gate_inp", "mlp.gate"},
    {"exp_probs_b", "mlp.gate.e_score_correction_bias!", HfForm::whole, "bias"},
    {"ffn_gate_exps", "mlp.experts.{e}.gate_proj"},
    {"ffn_up_exps", "mlp.experts.{e}.up_proj"},
    {"ffn_down_exps", "mlp.experts.{e}.down_proj"},
    {"ffn_gate_shexp", "mlp.shared_experts.gate_proj"},
    {"ffn_up_shexp", "mlp.shared_experts.up_proj"},
    {"ffn_down_shexp", "mlp.shared_experts.down_proj"},
};

void read(Keys& keys, ModelConfig& config) {
    config.qkv_bias = keys.gguf() ? keys.has_tensor(0, "attn_q", "bias") : keys.flag_or({}, "attention_bias", false);
    config.head_norms = keys.gguf() ? keys.has_tensor(0, "attn_q_norm") : keys.flag_or({}, "use_qk_norm", false);
    ExpertConfig& e = config.experts;
    e.gating = kernels::Gating::sigmoid;
    e.choice_bias = true;
    e.renormalize = keys.flag_or("expert_weights_norm", "norm_topk_prob", true);
    e.scale = keys.number_or("expert_weights_scale", "routed_scaling_factor", 1.0f);
    read_experts(keys, config, "n_routed_experts");
    const std::int32_t shared = keys.count_or("expert_shared_count", "n_shared_experts", 0);
    if (std::int64_t{shared} * e.d_ff > kMostFeedForward) {
        keys.refuse("expert_shared_count", "n_shared_experts",
                    "is " + std::to_string(shared) + ", which is not possible");
    }
    e.shared_ff = shared * e.d_ff;
    const std::int32_t dense = keys.count_or("leading_dense_block_count", "first_k_dense_replace", 0);
    spell_out_layers(config);
    for (std::int32_t i = 0; i < config.shape.layers; ++i) {
        config.layers[static_cast<std::size_t>(i)].experts = i >= dense;
    }
}

void layer(OpMaker& maker, std::int32_t i) { maker.add_plain_layer(i, "post_attention_norm"); }

// Parameters without the layer for multi-token prediction.
constexpr std::string_view kShapeKeys =
    R"("head_dim": 128, "partial_rotary_factor": 0.5, "attention_bias": true, "max_position_embeddings": 131072,
    "vocab_size": 151552, "rms_norm_eps": 1e-5, "rope_theta": 1000000, "num_experts_per_tok": 8,
    "n_shared_experts": 1, "n_group": 1, "topk_group": 1, "norm_topk_prob": true)";
constexpr PublishedShape kShapes[] = {
    {"glm-4.5-air", "zai-org/GLM-4.5-Air", 106.852,
     R"("num_hidden_layers": 46, "hidden_size": 4096, "num_attention_heads": 96, "num_key_value_heads": 8,
     "intermediate_size": 10944, "moe_intermediate_size": 1408, "n_routed_experts": 128,
     "first_k_dense_replace": 1, "routed_scaling_factor": 1)"},
    {"glm-4.6", "zai-org/GLM-4.6", 352.800,
     R"("num_hidden_layers": 92, "hidden_size": 5120, "num_attention_heads": 96, "num_key_value_heads": 8,
     "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160,
     "first_k_dense_replace": 3, "routed_scaling_factor": 2.5, "use_qk_norm": true)"},
};

}  // namespace

const Architecture& glm4moe_architecture() {
    static const Architecture architecture{.name = "glm4moe",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 131072,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
