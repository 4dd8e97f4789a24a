// core/models/glm4.cpp: GLM-4 (0414): norms after each branch as well, half of each head rotated, gate and up in one
// matrix.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"glm4"};
constexpr std::string_view kHfNames[] = {"Glm4ForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_up_alone", "mlp.up_proj"},
};

void read(Keys& keys, ModelConfig& config) {
    config.qkv_bias = keys.gguf() ? keys.has_tensor(0, "attn_q", "bias") : keys.flag_or({}, "attention_bias", false);
}

void layer(OpMaker& maker, std::int32_t i) {
    maker.add_attention(i, "attn_norm", "post_attention_norm");
    maker.add(maker.fused_mlp_in(i));
    maker.add(maker.mlp_out(i, "post_ffw_norm"));
}

constexpr std::string_view kShapeKeys =
    R"("head_dim": 128, "partial_rotary_factor": 0.5, "max_position_embeddings": 32768, "vocab_size": 151552,
    "rms_norm_eps": 1e-5, "rope_theta": 10000)";
constexpr PublishedShape kShapes[] = {
    {"glm-4-9b", "zai-org/GLM-4-9B-0414", 9.400,
     R"("num_hidden_layers": 40, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 2,
     "intermediate_size": 13696, "attention_bias": true)"},
    {"glm-4-32b", "zai-org/GLM-4-32B-0414", 32.566,
     R"("num_hidden_layers": 61, "hidden_size": 6144, "num_attention_heads": 48, "num_key_value_heads": 2,
     "intermediate_size": 23040)"},
};

}  // namespace

const Architecture& glm4_architecture() {
    static const Architecture architecture{.name = "glm4",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .gguf_rope = kernels::RopePairs::adjacent,
                                           .hf_rope = kernels::RopePairs::adjacent,
                                           .hf_context_length = 131072,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
