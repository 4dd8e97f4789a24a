// core/models/llama.cpp: Llama 1 to 3 and the many models that share their layout. GGUF files of Mistral and Mixtral
// name this architecture, too.

#include <string>

#include "base/error.h"
#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"llama"};
constexpr std::string_view kHfNames[] = {"LlamaForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    if (!keys.gguf()) {
        config.qkv_bias = config.attention_out_bias = keys.flag_or({}, "attention_bias", false);
        config.mlp_bias = keys.flag_or({}, "mlp_bias", false);
        return;
    }
    config.qkv_bias = keys.has_tensor(0, "attn_q", "bias");
    config.attention_out_bias = keys.has_tensor(0, "attn_output", "bias");
    config.mlp_bias = keys.has_tensor(0, "ffn_gate", "bias");
    config.window = keys.count_or("attention.sliding_window", {}, 0);
    if (keys.count_or("expert_count", {}, 0) > 0) {
        config.experts.renormalize = true;
        read_experts(keys, config);
    } else {
        keys.ignore({"expert_used_count"});
    }
}

void layer(OpMaker& maker, std::int32_t i) { maker.add_plain_layer(i); }

// The 1B shape has an LM head of its own here, as in other projects' benchmarks: published are 1.236
// billion parameters.
constexpr std::string_view kShapeKeys =
    R"("max_position_embeddings": 131072, "vocab_size": 128256, "rms_norm_eps": 1e-5, "rope_theta": 500000)";
constexpr PublishedShape kShapes[] = {
    {"llama-3.2-1b", "meta-llama/Llama-3.2-1B-Instruct", 1.498,
     R"("num_hidden_layers": 16, "hidden_size": 2048, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 8192, "rope_scaling": {"rope_type": "llama3", "factor": 32, "low_freq_factor": 1,
     "high_freq_factor": 4, "original_max_position_embeddings": 8192})"},
    {"llama-3.2-3b", "meta-llama/Llama-3.2-3B-Instruct", 3.213,
     R"("num_hidden_layers": 28, "hidden_size": 3072, "num_attention_heads": 24, "num_key_value_heads": 8,
     "intermediate_size": 8192, "tie_word_embeddings": true, "rope_scaling": {"rope_type": "llama3", "factor": 32,
     "low_freq_factor": 1, "high_freq_factor": 4, "original_max_position_embeddings": 8192})"},
    {"llama-3.1-8b", "meta-llama/Llama-3.1-8B-Instruct", 8.030,
     R"("num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 14336, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
     "high_freq_factor": 4, "original_max_position_embeddings": 8192})"},
    {"llama-3.1-70b", "meta-llama/Llama-3.1-70B-Instruct", 70.554,
     R"("num_hidden_layers": 80, "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8,
     "intermediate_size": 28672, "rope_scaling": {"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
     "high_freq_factor": 4, "original_max_position_embeddings": 8192})"},
};

}  // namespace

const Architecture& llama_architecture() {
    static const Architecture architecture{.name = "llama",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .gguf_rope = kernels::RopePairs::adjacent,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
