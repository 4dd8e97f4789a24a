// core/models/qwen3.cpp: Qwen3: Llama's layout with norms of Q and K per head.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"qwen3"};
constexpr std::string_view kHfNames[] = {"Qwen3ForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    keys.expect_flag({}, "use_sliding_window", false, "is true: sliding-window attention is not supported here");
    keys.ignore({"sliding_window", "layer_types"});  // of no effect without use_sliding_window
    config.head_norms = true;
    config.qkv_bias = config.attention_out_bias = keys.flag_or({}, "attention_bias", false);
}

void layer(OpMaker& maker, std::int32_t i) { maker.add_plain_layer(i); }

constexpr std::string_view kShapeKeys =
    R"("head_dim": 128, "max_position_embeddings": 40960, "vocab_size": 151936, "rms_norm_eps": 1e-6,
    "rope_theta": 1000000)";
constexpr PublishedShape kShapes[] = {
    {"qwen3-0.6b", "Qwen/Qwen3-0.6B", 0.596,
     R"("num_hidden_layers": 28, "hidden_size": 1024, "num_attention_heads": 16, "num_key_value_heads": 8,
     "intermediate_size": 3072, "tie_word_embeddings": true)"},
    {"qwen3-1.7b", "Qwen/Qwen3-1.7B", 1.721,
     R"("num_hidden_layers": 28, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 8,
     "intermediate_size": 6144, "tie_word_embeddings": true)"},
    {"qwen3-4b", "Qwen/Qwen3-4B", 4.022,
     R"("num_hidden_layers": 36, "hidden_size": 2560, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 9728, "tie_word_embeddings": true)"},
    {"qwen3-8b", "Qwen/Qwen3-8B", 8.191,
     R"("num_hidden_layers": 36, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 12288)"},
    {"qwen3-14b", "Qwen/Qwen3-14B", 14.768,
     R"("num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
     "intermediate_size": 17408)"},
    {"qwen3-32b", "Qwen/Qwen3-32B", 32.762,
     R"("num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 64, "num_key_value_heads": 8,
     "intermediate_size": 25600)"},
};

}  // namespace

const Architecture& qwen3_architecture() {
    static const Architecture architecture{.name = "qwen3",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 32768,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
