// core/models/cohere2.cpp: Command R7B and Command A: three layers with a window and rope, then one that sees all,
// without rope.

#include "core/models/cohere.h"
#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"cohere2"};
constexpr std::string_view kHfNames[] = {"Cohere2ForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    read_cohere(keys, config);
    config.window = keys.count_or("attention.sliding_window", "sliding_window", 4096);
    if (config.window == 0) keys.refuse("attention.sliding_window", "sliding_window", "is 0");
    keys.ignore({"rotary_pct", "position_embedding_type", "order_of_interleaved_layers", "use_gated_activation"});
    set_sliding(config, sliding_layers(keys, config, 4));
    for (LayerConfig& layer : config.layers) {
        if (layer.window == 0) layer.rope.pairs = kernels::RopePairs::none;
    }
}

void layer(OpMaker& maker, std::int32_t i) { add_parallel_layer(maker, i, maker.attention_in(i)); }

constexpr std::string_view kShapeKeys =
    R"("layer_norm_eps": 1e-5, "vocab_size": 256000, "rope_theta": 50000, "logit_scale": 0.25, "sliding_window": 4096)";
constexpr PublishedShape kShapes[] = {
    {"command-r7b", "CohereForAI/c4ai-command-r7b-12-2024", 8.028,
     R"("num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 14336, "max_position_embeddings": 132096)"},
    {"command-a-111b", "CohereForAI/c4ai-command-a-03-2025", 111.058,
     R"("num_hidden_layers": 64, "hidden_size": 12288, "num_attention_heads": 96, "num_key_value_heads": 8,
     "intermediate_size": 36864, "max_position_embeddings": 131072)"},
};

}  // namespace

const Architecture& cohere2_architecture() {
    static const Architecture architecture{.name = "cohere2",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .gguf_rope = kernels::RopePairs::adjacent,
                                           .hf_rope = kernels::RopePairs::adjacent,
                                           .hf_context_length = 8192,
                                           .hf_tied = true,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
