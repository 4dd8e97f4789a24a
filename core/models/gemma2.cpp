// core/models/gemma2.cpp: Gemma 2: norms before and after each branch, soft caps, and a window in every second layer.

#include "core/models/gemma.h"
#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"gemma2"};
constexpr std::string_view kHfNames[] = {"Gemma2ForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    read_gemma(keys, config);
    read_gemma_scale(keys, config, 46);
    set_sliding(config, sliding_layers(keys, config, 2));
}

void layer(OpMaker& maker, std::int32_t i) { add_gemma_layer(maker, i); }

constexpr std::string_view kShapeKeys =
    R"("max_position_embeddings": 8192, "vocab_size": 256000, "attn_logit_softcapping": 50,
    "final_logit_softcapping": 30, "sliding_window": 4096)";
constexpr PublishedShape kShapes[] = {
    {"gemma-2-2b", "google/gemma-2-2b-it", 2.614,
     R"("num_hidden_layers": 26, "hidden_size": 2304, "num_attention_heads": 8, "num_key_value_heads": 4,
     "intermediate_size": 9216, "head_dim": 256, "query_pre_attn_scalar": 256)"},
    {"gemma-2-9b", "google/gemma-2-9b-it", 9.242,
     R"("num_hidden_layers": 42, "hidden_size": 3584, "num_attention_heads": 16, "num_key_value_heads": 8,
     "intermediate_size": 14336, "head_dim": 256, "query_pre_attn_scalar": 256)"},
    {"gemma-2-27b", "google/gemma-2-27b-it", 27.227,
     R"("num_hidden_layers": 46, "hidden_size": 4608, "num_attention_heads": 32, "num_key_value_heads": 16,
     "intermediate_size": 36864, "head_dim": 128, "query_pre_attn_scalar": 144)"},
};

}  // namespace

const Architecture& gemma2_architecture() {
    static const Architecture architecture{.name = "gemma2",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 8192,
                                           .hf_tied = true,
                                           .hf_tensors = kGemmaHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
