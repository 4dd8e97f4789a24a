// core/models/mistral.cpp: Mistral 7B to Small 3 and Ministral 3: Llama's layout, with a window in the first ones, and
// with yarn and a temperature of queries in the last. GGUF files of the older ones say llama.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"mistral3"};
constexpr std::string_view kHfNames[] = {"MistralForCausalLM", "Mistral3ForConditionalGeneration",
                                         "Ministral3ForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    config.window = keys.count_or("attention.sliding_window", "sliding_window", 0);
    const bool now = keys.is_object("rope_parameters");
    const std::string table = now ? "rope_parameters." : "rope_scaling.";
    config.temperature.beta = keys.number_or("attention.temperature_scale", table + "llama_4_scaling_beta", 0.0f);
    config.temperature.length = keys.count_or("attention.temperature_length", {}, config.rope.original_context);
    if (config.temperature.length == 0 && config.temperature.beta != 0.0f) {
        keys.refuse("attention.temperature_length", table + "original_max_position_embeddings", "is 0");
    }
}

void layer(OpMaker& maker, std::int32_t i) { maker.add_plain_layer(i); }

// Parameters of the text model, without the tower for images of Small 3.2 and of Ministral 3.
constexpr std::string_view kShapeKeys = R"("rms_norm_eps": 1e-5)";
constexpr PublishedShape kShapes[] = {
    {"mistral-7b", "mistralai/Mistral-7B-Instruct-v0.3", 7.248,
     R"("num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 14336, "max_position_embeddings": 32768, "vocab_size": 32768, "rope_theta": 1000000)"},
    {"mistral-nemo-12b", "mistralai/Mistral-Nemo-Instruct-2407", 12.248,
     R"("num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 14336, "head_dim": 128, "max_position_embeddings": 131072, "vocab_size": 131072,
     "rope_theta": 1000000)"},
    {"mistral-small-24b", "mistralai/Mistral-Small-3.2-24B-Instruct-2506", 23.572,
     R"("num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 32768, "head_dim": 128, "max_position_embeddings": 131072, "vocab_size": 131072,
     "rope_theta": 1000000000)"},
    {"ministral-3-3b", "mistralai/Ministral-3-3B-Instruct-2512", 3.400,
     R"("num_hidden_layers": 26, "hidden_size": 3072, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 9216, "tie_word_embeddings": true, "max_position_embeddings": 262144,
     "vocab_size": 131072, "head_dim": 128, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000,
     "factor": 16, "original_max_position_embeddings": 16384, "beta_fast": 32, "beta_slow": 1, "mscale": 1,
     "mscale_all_dim": 1, "llama_4_scaling_beta": 0.1})"},
    {"ministral-3-8b", "mistralai/Ministral-3-8B-Instruct-2512", 8.400,
     R"("num_hidden_layers": 34, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 14336, "max_position_embeddings": 262144, "vocab_size": 131072, "head_dim": 128,
     "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000, "factor": 16,
     "original_max_position_embeddings": 16384, "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1,
     "llama_4_scaling_beta": 0.1})"},
    {"ministral-3-14b", "mistralai/Ministral-3-14B-Instruct-2512", 13.500,
     R"("num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 16384, "max_position_embeddings": 262144, "vocab_size": 131072, "head_dim": 128,
     "rope_parameters": {"rope_type": "yarn", "rope_theta": 1000000, "factor": 16,
     "original_max_position_embeddings": 16384, "beta_fast": 32, "beta_slow": 1, "mscale": 1, "mscale_all_dim": 1,
     "llama_4_scaling_beta": 0.1})"},
};

}  // namespace

const Architecture& mistral_architecture() {
    static const Architecture architecture{.name = "mistral",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .gguf_rope = kernels::RopePairs::adjacent,
                                           .hf_context_length = 32768,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
