// core/models/starcoder2.cpp: StarCoder2: LayerNorm, biases everywhere, and a feed-forward network without a gate.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"starcoder2"};
constexpr std::string_view kHfNames[] = {"Starcoder2ForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"ffn_up", "mlp.c_fc"},
    {"ffn_down", "mlp.c_proj"},
};

void read(Keys& keys, ModelConfig& config) {
    const bool biases = keys.gguf() ? keys.has_tensor(0, "attn_q", "bias") : keys.flag_or({}, "use_bias", true);
    config.qkv_bias = config.attention_out_bias = config.mlp_bias = biases;
    config.norm_kind = kernels::NormKind::layer;
    config.norm_bias = true;
    config.norm_eps = keys.epsilon_or("attention.layer_norm_epsilon", "norm_epsilon", 1e-5f);
    config.activation = activation_by_name(keys, "hidden_act", "gelu_pytorch_tanh");
    keys.ignore({"activation_function", "attention_softmax_in_fp32", "scale_attention_softmax_in_fp32",
                 "scale_attn_weights", "mlp_type", "norm_type",
                 "layer_norm_epsilon"});  // hidden_act and norm_epsilon count
    config.window = keys.count_or("attention.sliding_window", "sliding_window", 0);
}

void layer(OpMaker& maker, std::int32_t i) {
    maker.add_attention(i);
    maker.add(maker.mlp_in(i, "ffn_norm", false));
    maker.add(maker.mlp_out(i));
}

constexpr std::string_view kShapeKeys =
    R"("max_position_embeddings": 16384, "vocab_size": 49152, "norm_epsilon": 1e-5, "sliding_window": 4096,
    "use_bias": true)";
constexpr PublishedShape kShapes[] = {
    {"starcoder2-3b", "bigcode/starcoder2-3b", 3.030,
     R"("num_hidden_layers": 30, "hidden_size": 3072, "num_attention_heads": 24, "num_key_value_heads": 2,
     "intermediate_size": 12288, "rope_theta": 999999.4420358813)"},
    {"starcoder2-7b", "bigcode/starcoder2-7b", 7.174,
     R"("num_hidden_layers": 32, "hidden_size": 4608, "num_attention_heads": 36, "num_key_value_heads": 4,
     "intermediate_size": 18432, "rope_theta": 1000000)"},
    {"starcoder2-15b", "bigcode/starcoder2-15b", 15.958,
     R"("num_hidden_layers": 40, "hidden_size": 6144, "num_attention_heads": 48, "num_key_value_heads": 4,
     "intermediate_size": 24576, "rope_theta": 100000, "tie_word_embeddings": false)"},
};

}  // namespace

const Architecture& starcoder2_architecture() {
    static const Architecture architecture{.name = "starcoder2",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 16384,
                                           .hf_tied = true,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
