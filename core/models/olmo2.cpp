// core/models/olmo2.cpp: OLMo 2 and 3: norms only after each branch, and norms over all heads of Q and of K. OLMo 3 has
// a window in three of four layers, and yarn in the others only.

#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"olmo2"};
constexpr std::string_view kHfNames[] = {"Olmo2ForCausalLM", "Olmo3ForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
};

void read(Keys& keys, ModelConfig& config) {
    config.window = keys.count_or("attention.sliding_window", "sliding_window", 0);
    keys.expect_flag({}, "attention_bias", false, "is true, which is not supported");
    if (config.window == 0) return keys.ignore({"layer_types"});
    set_sliding(config, sliding_layers(keys, config, 4));
    for (LayerConfig& layer : config.layers) {
        if (layer.window > 0) layer.rope = {.theta = config.rope.theta, .pairs = config.rope.pairs};
    }
}

void layer(StageMaker& stages, std::int32_t i) {
    const LayerConfig own = stages.layer(i);
    kernels::AttentionInSpec in = stages.attention_in(i, {});
    in.q_norm = stages.norm(i, "attn_q_norm", std::int64_t{own.heads} * own.head_dim);
    in.k_norm = stages.norm(i, "attn_k_norm", std::int64_t{own.kv_heads} * own.head_dim);
    in.whole_norms = true;
    stages.add(in);
    stages.add(stages.attend(i));
    stages.add(stages.attention_out(i, "post_attention_norm"));
    stages.add_mlp(i, {}, "post_ffw_norm");
}

}  // namespace

const Architecture& olmo2_architecture() {
    static const Architecture architecture{.name = "olmo2",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 4096,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
