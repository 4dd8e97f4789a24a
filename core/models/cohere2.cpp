// core/models/cohere2.cpp: Command R7B and Command A: three layers with a window and rope, then one that sees all,
// without rope.

#include "core/models/cohere.h"
#include "core/models/read_config.h"
#include "core/models/stages.h"

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

void layer(StageMaker& stages, std::int32_t i) { add_parallel_layer(stages, i, stages.attention_in(i)); }

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
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
