// core/models/gemma3.cpp: Gemma 3: Gemma 2 with norms of Q and K, a window in five of six layers, and a rope of their
// own there.

#include "core/models/gemma.h"
#include "core/models/op_maker.h"
#include "core/models/read_config.h"

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

void layer(OpMaker& maker, std::int32_t i) { add_gemma_layer(maker, i); }

// Parameters of the text model: the files of 4B and larger have 0.42 billion for images besides.
constexpr std::string_view kShapeKeys =
    R"("rope_theta": 1000000, "rope_local_base_freq": 10000, "sliding_window_pattern": 6)";
constexpr PublishedShape kShapes[] = {
    {"gemma-3-270m", "google/gemma-3-270m-it", 0.268,
     R"("num_hidden_layers": 18, "hidden_size": 640, "num_attention_heads": 4, "num_key_value_heads": 1,
     "intermediate_size": 2048, "head_dim": 256, "max_position_embeddings": 32768, "sliding_window": 512,
     "vocab_size": 262144)"},
    {"gemma-3-1b", "google/gemma-3-1b-it", 1.000,
     R"("num_hidden_layers": 26, "hidden_size": 1152, "num_attention_heads": 4, "num_key_value_heads": 1,
     "intermediate_size": 6912, "head_dim": 256, "max_position_embeddings": 32768, "sliding_window": 512,
     "vocab_size": 262144)"},
    {"gemma-3-4b", "google/gemma-3-4b-it", 3.880,
     R"("num_hidden_layers": 34, "hidden_size": 2560, "num_attention_heads": 8, "num_key_value_heads": 4,
     "intermediate_size": 10240, "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 1024,
     "vocab_size": 262208, "rope_scaling": {"rope_type": "linear", "factor": 8})"},
    {"gemma-3-12b", "google/gemma-3-12b-it", 11.766,
     R"("num_hidden_layers": 48, "hidden_size": 3840, "num_attention_heads": 16, "num_key_value_heads": 8,
     "intermediate_size": 15360, "head_dim": 256, "max_position_embeddings": 131072, "sliding_window": 1024,
     "vocab_size": 262208, "rope_scaling": {"rope_type": "linear", "factor": 8})"},
    {"gemma-3-27b", "google/gemma-3-27b-it", 27.009,
     R"("num_hidden_layers": 62, "hidden_size": 5376, "num_attention_heads": 32, "num_key_value_heads": 16,
     "intermediate_size": 21504, "head_dim": 128, "query_pre_attn_scalar": 168, "max_position_embeddings": 131072,
     "sliding_window": 1024, "vocab_size": 262208, "rope_scaling": {"rope_type": "linear", "factor": 8})"},
};

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
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
