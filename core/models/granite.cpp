// core/models/granite.cpp: Granite 3 and 4 (dense, and with experts): Llama's layout with four multipliers.

#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"granite", "granitemoe"};
constexpr std::string_view kHfNames[] = {"GraniteForCausalLM", "GraniteMoeForCausalLM", "GraniteMoeSharedForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"ffn_gate_inp", "block_sparse_moe.router.layer"},
    {"ffn_gate_exps", "block_sparse_moe.input_linear", HfForm::first_half},
    {"ffn_up_exps", "block_sparse_moe.input_linear", HfForm::second_half},
    {"ffn_down_exps", "block_sparse_moe.output_linear"},
    {"ffn_gate_shexp", "shared_mlp.input_linear", HfForm::first_half},
    {"ffn_up_shexp", "shared_mlp.input_linear", HfForm::second_half},
    {"ffn_down_shexp", "shared_mlp.output_linear"},
};

void read(Keys& keys, ModelConfig& config) {
    config.embedding_scale = keys.number_or("embedding_scale", "embedding_multiplier", 1.0f);
    config.residual_scale = keys.number_or("residual_scale", "residual_multiplier", 1.0f);
    config.attention_scale = keys.number_or("attention.scale", "attention_multiplier", 1.0f);
    const float divisor = keys.number_or("logit_scale", "logits_scaling", 1.0f);
    if (divisor == 0.0f) keys.refuse("logit_scale", "logits_scaling", "is 0");
    config.logit_scale = 1.0f / divisor;
    config.qkv_bias = config.attention_out_bias = keys.flag_or({}, "attention_bias", false);
    config.mlp_bias = keys.flag_or({}, "mlp_bias", false);
    if (!keys.has("expert_count", "num_local_experts")) return;
    config.experts.gating = kernels::Gating::softmax_chosen;
    read_experts(keys, config);
    config.experts.shared_ff = keys.count_or("expert_shared_feed_forward_length", "shared_intermediate_size", 0);
}

void layer(StageMaker& stages, std::int32_t i) { stages.add_plain_layer(i); }

}  // namespace

const Architecture& granite_architecture() {
    static const Architecture architecture{.name = "granite",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .gguf_rope = kernels::RopePairs::adjacent,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
