// core/models/qwen2.cpp: Qwen2 and Qwen2.5, the Coder models included: Llama's layout with biases on Q, K and V.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"qwen2"};
constexpr std::string_view kHfNames[] = {"Qwen2ForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    keys.expect_flag({}, "use_sliding_window", false, "is true: sliding-window attention is not supported here");
    keys.ignore({"sliding_window", "layer_types"});  // of no effect without use_sliding_window
    config.qkv_bias = true;
}

void layer(OpMaker& maker, std::int32_t i) { maker.add_plain_layer(i); }

constexpr std::string_view kShapeKeys =
    R"("max_position_embeddings": 32768, "rms_norm_eps": 1e-6, "rope_theta": 1000000)";
constexpr PublishedShape kShapes[] = {
    {"qwen2.5-coder-0.5b", "Qwen/Qwen2.5-Coder-0.5B-Instruct", 0.494,
     R"("num_hidden_layers": 24, "hidden_size": 896, "num_attention_heads": 14, "num_key_value_heads": 2,
     "intermediate_size": 4864, "tie_word_embeddings": true, "vocab_size": 151936)"},
    {"qwen2.5-coder-1.5b", "Qwen/Qwen2.5-Coder-1.5B-Instruct", 1.544,
     R"("num_hidden_layers": 28, "hidden_size": 1536, "num_attention_heads": 12, "num_key_value_heads": 2,
     "intermediate_size": 8960, "tie_word_embeddings": true, "vocab_size": 151936)"},
    {"qwen2.5-coder-3b", "Qwen/Qwen2.5-Coder-3B-Instruct", 3.086,
     R"("num_hidden_layers": 36, "hidden_size": 2048, "num_attention_heads": 16, "num_key_value_heads": 2,
     "intermediate_size": 11008, "tie_word_embeddings": true, "vocab_size": 151936)"},
    {"qwen2.5-coder-7b", "Qwen/Qwen2.5-Coder-7B-Instruct", 7.616,
     R"("num_hidden_layers": 28, "hidden_size": 3584, "num_attention_heads": 28, "num_key_value_heads": 4,
     "intermediate_size": 18944, "vocab_size": 152064)"},
    {"qwen2.5-coder-14b", "Qwen/Qwen2.5-Coder-14B-Instruct", 14.770,
     R"("num_hidden_layers": 48, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
     "intermediate_size": 13824, "vocab_size": 152064)"},
    {"qwen2.5-coder-32b", "Qwen/Qwen2.5-Coder-32B-Instruct", 32.764,
     R"("num_hidden_layers": 64, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 8,
     "intermediate_size": 27648, "vocab_size": 152064)"},
};

}  // namespace

const Architecture& qwen2_architecture() {
    static const Architecture architecture{.name = "qwen2",
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
