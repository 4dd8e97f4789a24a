// core/models/glm4.cpp: GLM-4 (0414): norms after each branch as well, half of each head rotated, gate and up in one
// matrix.

#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"glm4"};
constexpr std::string_view kHfNames[] = {"Glm4ForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"post_attention_norm", "post_self_attn_layernorm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_mlp_layernorm"},
    {"ffn_up", "mlp.gate_up_proj"},
};

void read(Keys& keys, ModelConfig& config) {
    config.qkv_bias = keys.gguf() ? keys.has_tensor(0, "attn_q", "bias") : keys.flag_or({}, "attention_bias", false);
}

void layer(StageMaker& stages, std::int32_t i) {
    stages.add_attention(i, "attn_norm", "post_attention_norm");
    stages.add(stages.fused_mlp_in(i));
    stages.add(stages.mlp_out(i, "post_ffw_norm"));
}

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
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
