// core/models/seed_oss.cpp: Seed-OSS: Llama's layout with biases on Q, K and V.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

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

void layer(OpMaker& maker, std::int32_t i) { maker.add_plain_layer(i, "post_attention_norm"); }

constexpr std::string_view kShapeKeys =
    R"("max_position_embeddings": 524288, "vocab_size": 155136, "rms_norm_eps": 1e-6, "rope_theta": 10000000)";
constexpr PublishedShape kShapes[] = {
    {"seed-oss-36b", "ByteDance-Seed/Seed-OSS-36B-Instruct", 36.151,
     R"("num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 80, "num_key_value_heads": 8,
     "intermediate_size": 27648, "head_dim": 128, "attention_bias": true)"},
};

}  // namespace

const Architecture& seed_oss_architecture() {
    static const Architecture architecture{.name = "seed_oss",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 524288,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
