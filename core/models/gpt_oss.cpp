// core/models/gpt_oss.cpp: gpt-oss: experts with a clamped activation, attention sinks, biases, and a window in every
// second layer. Its experts are stored in MXFP4.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"gpt-oss"};
constexpr std::string_view kHfNames[] = {"GptOssForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"attn_sinks", "self_attn.sinks!"},
    {"ffn_gate_inp", "mlp.router"},
    {"ffn_gate_exps", "mlp.experts.gate_up_proj!", HfForm::even_rows, "weight", true},
    {"ffn_up_exps", "mlp.experts.gate_up_proj!", HfForm::odd_rows, "weight", true},
    {"ffn_down_exps", "mlp.experts.down_proj!", HfForm::whole, "weight", true},
    {"ffn_gate_exps", "mlp.experts.gate_up_proj_bias!", HfForm::even_rows, "bias"},
    {"ffn_up_exps", "mlp.experts.gate_up_proj_bias!", HfForm::odd_rows, "bias"},
    {"ffn_down_exps", "mlp.experts.down_proj_bias!", HfForm::whole, "bias"},
};

void read(Keys& keys, ModelConfig& config) {
    config.qkv_bias = config.attention_out_bias = keys.flag_or({}, "attention_bias", true);
    config.window = keys.count("attention.sliding_window", "sliding_window");
    if (config.window == 0) keys.refuse("attention.sliding_window", "sliding_window", "is 0");
    if (keys.gguf()) config.rope.truncate = false;  // GGUF has no key for it
    config.activation = kernels::Activation::clamped_swiglu;
    config.activation_limit = keys.number_or({}, "swiglu_limit", 7.0f);
    config.experts.gating = kernels::Gating::softmax_chosen;
    read_experts(keys, config);
    config.experts.router_bias = config.experts.biases = true;
    keys.ignore({"initial_context_length", "experts_per_token"});  // other words for what has been read
    set_sliding(config, sliding_layers(keys, config, 2));
}

void layer(OpMaker& maker, std::int32_t i) {
    maker.add(maker.attention_in(i));
    kernels::AttendSpec attend = maker.attend(i);
    attend.sinks = maker.vector(i, "attn_sinks", maker.layer(i).heads);
    maker.add(attend);
    maker.add(maker.attention_out(i));
    maker.add_experts(i, "post_attention_norm");
}

constexpr std::string_view kShapeKeys =
    R"("hidden_size": 2880, "intermediate_size": 2880, "num_attention_heads": 64, "num_key_value_heads": 8,
    "head_dim": 64, "num_experts_per_tok": 4, "sliding_window": 128, "swiglu_limit": 7,
    "max_position_embeddings": 131072, "vocab_size": 201088, "rms_norm_eps": 1e-5, "rope_theta": 150000,
    "rope_scaling": {"rope_type": "yarn", "factor": 32, "beta_fast": 32, "beta_slow": 1,
    "original_max_position_embeddings": 4096, "truncate": false})";
constexpr PublishedShape kShapes[] = {
    {"gpt-oss-20b", "openai/gpt-oss-20b", 20.915, R"("num_hidden_layers": 24, "num_local_experts": 32)"},
    {"gpt-oss-120b", "openai/gpt-oss-120b", 116.829, R"("num_hidden_layers": 36, "num_local_experts": 128)"},
};

}  // namespace

const Architecture& gpt_oss_architecture() {
    static const Architecture architecture{.name = "gpt_oss",
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
