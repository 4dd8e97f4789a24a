// core/models/olmo2.cpp: OLMo 2 and 3: norms only after each branch, and norms over all heads of Q and of K. OLMo 3 has
// a window in three of four layers, and yarn in the others only.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

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

void layer(OpMaker& maker, std::int32_t i) {
    const LayerConfig own = maker.layer(i);
    kernels::AttentionInSpec in = maker.attention_in(i, {});
    in.q_norm = maker.norm(i, "attn_q_norm", std::int64_t{own.heads} * own.head_dim);
    in.k_norm = maker.norm(i, "attn_k_norm", std::int64_t{own.kv_heads} * own.head_dim);
    in.whole_norms = true;
    maker.add(in);
    maker.add(maker.attend(i));
    maker.add(maker.attention_out(i, "post_attention_norm"));
    maker.add_mlp(i, {}, "post_ffw_norm");
}

constexpr std::string_view kShapeKeys = R"("rms_norm_eps": 1e-6, "rope_theta": 500000)";
constexpr PublishedShape kShapes[] = {
    {"olmo-2-1b", "allenai/OLMo-2-0425-1B-Instruct", 1.485,
     R"("num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 16,
     "intermediate_size": 8192, "max_position_embeddings": 4096, "vocab_size": 100352)"},
    {"olmo-2-7b", "allenai/OLMo-2-1124-7B-Instruct", 7.299,
     R"("num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32,
     "intermediate_size": 11008, "max_position_embeddings": 4096, "vocab_size": 100352)"},
    {"olmo-2-13b", "allenai/OLMo-2-1124-13B-Instruct", 13.716,
     R"("num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 40,
     "intermediate_size": 13824, "max_position_embeddings": 4096, "vocab_size": 100352)"},
    {"olmo-2-32b", "allenai/OLMo-2-0325-32B-Instruct", 32.234,
     R"("num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
     "intermediate_size": 27648, "max_position_embeddings": 4096, "vocab_size": 100352)"},
    {"olmo-3-7b", "allenai/Olmo-3-7B-Instruct", 7.298,
     R"("num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 32,
     "intermediate_size": 11008, "max_position_embeddings": 65536, "vocab_size": 100278, "sliding_window": 4096,
     "rope_scaling": {"rope_type": "yarn", "factor": 8, "original_max_position_embeddings": 8192, "beta_fast": 32,
     "beta_slow": 1, "attention_factor": 1.2079441541679836})"},
};

}  // namespace

const Architecture& olmo2_architecture() {
    static const Architecture architecture{.name = "olmo2",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 4096,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
