// core/models/qwen3moe.cpp: Qwen3 with experts (30B-A3B, 235B-A22B): a softmax over all, of which the best count.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"qwen3moe"};
constexpr std::string_view kHfNames[] = {"Qwen3MoeForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"ffn_gate_inp", "mlp.gate"},
    {"ffn_gate_exps", "mlp.experts.{e}.gate_proj"},
    {"ffn_up_exps", "mlp.experts.{e}.up_proj"},
    {"ffn_down_exps", "mlp.experts.{e}.down_proj"},
};

void read(Keys& keys, ModelConfig& config) {
    keys.expect_flag({}, "use_sliding_window", false, "is true: sliding-window attention is not supported here");
    keys.ignore({"sliding_window", "layer_types"});  // of no effect without use_sliding_window
    config.head_norms = true;
    config.qkv_bias = config.attention_out_bias = keys.flag_or({}, "attention_bias", false);
    config.experts.renormalize = keys.flag_or({}, "norm_topk_prob", keys.gguf());
    read_experts(keys, config);
    if (keys.gguf()) return;
    // Some layers may be dense.
    const std::int32_t step = keys.count_or({}, "decoder_sparse_step", 1);
    if (step == 0) keys.refuse({}, "decoder_sparse_step", "is 0");
    spell_out_layers(config);
    for (std::int32_t i = 0; i < config.shape.layers; ++i) {
        config.layers[static_cast<std::size_t>(i)].experts = (i + 1) % step == 0;
    }
    for (const std::int32_t dense : keys.list("mlp_only_layers")) {
        if (dense >= config.shape.layers)
            keys.refuse({}, "mlp_only_layers", "names a layer that the model does not have");
        config.layers[static_cast<std::size_t>(dense)].experts = false;
    }
}

void layer(OpMaker& maker, std::int32_t i) { maker.add_plain_layer(i); }

constexpr std::string_view kShapeKeys =
    R"("head_dim": 128, "max_position_embeddings": 40960, "vocab_size": 151936, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000, "num_experts": 128, "num_experts_per_tok": 8, "norm_topk_prob": true,
    "decoder_sparse_step": 1)";
constexpr PublishedShape kShapes[] = {
    {"qwen3-30b-a3b", "Qwen/Qwen3-30B-A3B", 30.532,
     R"("num_hidden_layers": 48, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 4,
     "intermediate_size": 6144, "moe_intermediate_size": 768)"},
    {"qwen3-235b-a22b", "Qwen/Qwen3-235B-A22B", 235.094,
     R"("num_hidden_layers": 94, "hidden_size": 4096, "num_attention_heads": 64, "num_key_value_heads": 4,
     "intermediate_size": 12288, "moe_intermediate_size": 1536)"},
};

}  // namespace

const Architecture& qwen3moe_architecture() {
    static const Architecture architecture{.name = "qwen3moe",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 32768,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
