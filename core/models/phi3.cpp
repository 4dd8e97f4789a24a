// core/models/phi3.cpp: Phi-3 and Phi-4: Llama's layout with Q, K and V in one matrix, and gate and up in another; long
// contexts by a second list of rope factors.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"phi3"};
constexpr std::string_view kHfNames[] = {"Phi3ForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_up", "mlp.gate_up_proj"},
    {"ffn_up_alone", "mlp.up_proj"},
};

void read(Keys& keys, ModelConfig& config) {
    config.window = keys.count_or("attention.sliding_window", "sliding_window", 0);
    // The first counts for longrope only; the others are 1 in published files.
    keys.ignore({"original_max_position_embeddings", "interpolate_factor", "full_attn_mod"});
    keys.expect_flag({}, "attention_bias", false, "is true, which is not supported");
}

void layer(OpMaker& maker, std::int32_t i) {
    maker.add_attention(i);
    maker.add(maker.fused_mlp_in(i));
    maker.add(maker.mlp_out(i));
}

constexpr std::string_view kShapeKeys = R"("rms_norm_eps": 1e-5)";
constexpr PublishedShape kShapes[] = {
    {"phi-3-mini", "microsoft/Phi-3-mini-4k-instruct", 3.821,
     R"("num_hidden_layers": 32, "hidden_size": 3072, "num_attention_heads": 32, "num_key_value_heads": 32,
     "intermediate_size": 8192, "sliding_window": 2047, "max_position_embeddings": 4096, "vocab_size": 32064,
     "rope_theta": 10000)"},
    {"phi-3-medium", "microsoft/Phi-3-medium-4k-instruct", 13.960,
     R"("num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 10,
     "intermediate_size": 17920, "sliding_window": 2047, "max_position_embeddings": 4096, "vocab_size": 32064,
     "rope_theta": 10000)"},
    {"phi-4-mini", "microsoft/Phi-4-mini-instruct", 3.836,
     R"("num_hidden_layers": 32, "hidden_size": 3072, "num_attention_heads": 24, "num_key_value_heads": 8,
     "intermediate_size": 8192, "tie_word_embeddings": true, "max_position_embeddings": 131072,
     "original_max_position_embeddings": 4096, "sliding_window": 262144, "partial_rotary_factor": 0.75,
     "vocab_size": 200064, "rope_theta": 10000, "rope_scaling": {"type": "longrope", "short_factor": [1, 1, 1, 1,
     1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
     1, 1, 1, 1, 1, 1, 1], "long_factor": [1, 1.118320672, 1.250641126, 1.398617824, 1.564103225, 1.74916897,
     1.956131817, 2.187582649, 2.446418898, 2.735880826, 3.059592084, 3.421605075, 3.826451687, 4.279200023,
     4.785517845, 5.351743533, 5.984965424, 6.693110555, 7.485043894, 8.370679318, 9.36110372, 10.4687158,
     11.70738129, 13.09260651, 14.64173252, 16.37415215, 18.31155283, 20.47818807, 22.90118105, 25.61086418,
     28.64115884, 32.03, 32.1, 32.13, 32.23, 32.6, 32.61, 32.64, 32.66, 32.7, 32.71, 32.93, 32.97, 33.28, 33.49,
     33.5, 44.16, 47.77]})"},
    {"phi-4", "microsoft/phi-4", 14.660,
     R"("num_hidden_layers": 40, "hidden_size": 5120, "num_attention_heads": 40, "num_key_value_heads": 10,
     "intermediate_size": 17920, "max_position_embeddings": 16384, "vocab_size": 100352, "rope_theta": 250000)"},
};

}  // namespace

const Architecture& phi3_architecture() {
    static const Architecture architecture{.name = "phi3",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 4096,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
