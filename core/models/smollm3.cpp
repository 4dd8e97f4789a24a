// core/models/smollm3.cpp: SmolLM3: Llama's layout, with every fourth layer without rope.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"smollm3"};
constexpr std::string_view kHfNames[] = {"SmolLM3ForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    keys.expect_flag({}, "use_sliding_window", false, "is true: sliding-window attention is not supported here");
    keys.ignore({"sliding_window", "layer_types"});  // of no effect without use_sliding_window
    config.qkv_bias = config.attention_out_bias = keys.flag_or({}, "attention_bias", false);
    config.mlp_bias = keys.flag_or({}, "mlp_bias", false);
    const auto layers = static_cast<std::size_t>(config.shape.layers);
    const std::int32_t period = keys.count_or({}, "no_rope_layer_interval", 4);
    if (period == 0) keys.refuse({}, "no_rope_layer_interval", "is 0");
    std::vector<bool> with_rope(layers);
    for (std::size_t i = 0; i < layers; ++i) with_rope[i] = (static_cast<std::int32_t>(i) + 1) % period != 0;
    if (keys.has({}, "no_rope_layers")) with_rope = keys.flags({}, "no_rope_layers", layers);  // 1: with rope
    spell_out_layers(config);
    for (std::size_t i = 0; i < layers; ++i) {
        if (!with_rope[i]) config.layers[i].rope.pairs = kernels::RopePairs::none;
    }
}

void layer(OpMaker& maker, std::int32_t i) { maker.add_plain_layer(i); }

constexpr std::string_view kShapeKeys =
    R"("max_position_embeddings": 65536, "vocab_size": 128256, "rms_norm_eps": 1e-6, "rope_theta": 5000000)";
constexpr PublishedShape kShapes[] = {
    {"smollm3-3b", "HuggingFaceTB/SmolLM3-3B", 3.075,
     R"("num_hidden_layers": 36, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 4,
     "intermediate_size": 11008)"},
};

}  // namespace

const Architecture& smollm3_architecture() {
    static const Architecture architecture{.name = "smollm3",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .gguf_rope = kernels::RopePairs::adjacent,
                                           .hf_context_length = 32768,
                                           .hf_tied = true,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
