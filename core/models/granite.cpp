// core/models/granite.cpp: Granite 3 (dense, and with experts): Llama's layout with four multipliers. GGUF files of the
// Granite 4 models that have attention in every layer say granite or granitemoe, too; those with Mamba layers say
// granitehybrid, and are not read.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

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
    // Of Granite 4: a switch for rope, and what a layer of Mamba would be.
    if (!keys.flag_or("rope.scaling.finetuned", {}, true)) config.rope.pairs = kernels::RopePairs::none;
    keys.ignore({"ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.inner_size", "ssm.time_step_rank"});
    const bool experts = keys.count_or("expert_count", "num_local_experts", 0) > 0;
    if (!experts) {
        return keys.ignore({"expert_used_count", "num_experts_per_tok", "expert_shared_feed_forward_length",
                            "shared_intermediate_size"});
    }
    config.experts.gating = kernels::Gating::softmax_chosen;
    read_experts(keys, config);
    config.experts.shared_ff = keys.count_or("expert_shared_feed_forward_length", "shared_intermediate_size", 0);
}

void layer(OpMaker& maker, std::int32_t i) { maker.add_plain_layer(i); }

constexpr std::string_view kShapeKeys =
    R"("max_position_embeddings": 131072, "rms_norm_eps": 1e-5, "rope_theta": 10000000, "embedding_multiplier": 12,
    "residual_multiplier": 0.22, "tie_word_embeddings": true)";
constexpr PublishedShape kShapes[] = {
    {"granite-3.3-2b", "ibm-granite/granite-3.3-2b-instruct", 2.534,
     R"("num_hidden_layers": 40, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 8192, "vocab_size": 49159, "attention_multiplier": 0.015625, "logits_scaling": 8)"},
    {"granite-3.3-8b", "ibm-granite/granite-3.3-8b-instruct", 8.171,
     R"("num_hidden_layers": 40, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 12800, "vocab_size": 49159, "attention_multiplier": 0.0078125, "logits_scaling": 16)"},
    {"granite-3.1-1b-a400m", "ibm-granite/granite-3.1-1b-a400m-instruct", 1.335,
     R"("num_hidden_layers": 24, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
     "intermediate_size": 512, "vocab_size": 49155, "num_local_experts": 32, "num_experts_per_tok": 8,
     "attention_multiplier": 0.015625, "logits_scaling": 6)"},
    {"granite-3.1-3b-a800m", "ibm-granite/granite-3.1-3b-a800m-instruct", 3.299,
     R"("num_hidden_layers": 32, "hidden_size": 1536, "num_attention_heads": 24, "num_key_value_heads": 8,
     "intermediate_size": 512, "vocab_size": 49155, "num_local_experts": 40, "num_experts_per_tok": 8,
     "attention_multiplier": 0.015625, "logits_scaling": 6)"},
};

}  // namespace

const Architecture& granite_architecture() {
    static const Architecture architecture{.name = "granite",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .gguf_rope = kernels::RopePairs::adjacent,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
