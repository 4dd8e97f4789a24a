// core/models/gemma3.cpp: Gemma 3: Gemma 2 with norms of Q and K, a window in five of six layers, and a rope of their
// own there.

#include "core/models/gemma.h"
#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"gemma3"};
constexpr std::string_view kHfNames[] = {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"};

void read(Keys& keys, ModelConfig& config) {
    read_gemma(keys, config);
    read_gemma_scale(keys, config, 62);
    config.head_norms = true;
    const bool now = keys.is_object("rope_parameters");
    config.rope = read_rope(keys, config.shape.head_dim, kernels::RopePairs::half_split, "full_attention");
    if (!keys.has("rope.freq_base", "rope_theta") && !now) config.rope.theta = 1000000.0f;
    RopeConfig local;
    if (now) {
        local = read_rope(keys, config.shape.head_dim, kernels::RopePairs::half_split, "sliding_attention");
        keys.ignore({"rope_local_base_freq"});
    } else {
        local.theta = keys.positive_or("rope.freq_base_swa", "rope_local_base_freq", 10000.0f);
    }
    set_sliding(config, sliding_layers(keys, config, 6));
    for (LayerConfig& layer : config.layers) layer.rope = layer.window > 0 ? local : config.rope;
}

void layer(StageMaker& stages, std::int32_t i) { add_gemma_layer(stages, i); }

}  // namespace

const Architecture& gemma3_architecture() {
    static const Architecture architecture{.name = "gemma3",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 131072,
                                           .hf_heads = 8,
                                           .hf_kv_heads = 4,
                                           .hf_head_dim = 256,
                                           .hf_tied = true,
                                           .hf_tensors = kGemmaHfTensors,
                                           .read = read,
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
