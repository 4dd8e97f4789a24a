// core/models/seed_oss.cpp: Seed-OSS: Llama's layout with biases on Q, K and V.

#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"seed_oss"};
constexpr std::string_view kHfNames[] = {"SeedOssForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"post_attention_norm", "post_attention_layernorm"},
};

void read(Keys& keys, ModelConfig& config) {
    const bool gguf = keys.gguf();
    config.qkv_bias = gguf ? keys.has_tensor(0, "attn_q", "bias") : keys.flag_or({}, "attention_bias", true);
    config.attention_out_bias =
        gguf ? keys.has_tensor(0, "attn_output", "bias") : keys.flag_or({}, "attention_out_bias", false);
    config.mlp_bias = keys.flag_or({}, "mlp_bias", false);
}

void layer(StageMaker& stages, std::int32_t i) { stages.add_plain_layer(i, "post_attention_norm"); }

}  // namespace

const Architecture& seed_oss_architecture() {
    static const Architecture architecture{.name = "seed_oss",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 524288,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
