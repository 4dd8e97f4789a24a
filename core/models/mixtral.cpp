// core/models/mixtral.cpp: Mixtral: Mistral with experts. Its GGUF files say llama.

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kHfNames[] = {"MixtralForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"ffn_gate_inp", "block_sparse_moe.gate"},
    {"ffn_gate_exps", "block_sparse_moe.experts.{e}.w1"},
    {"ffn_up_exps", "block_sparse_moe.experts.{e}.w3"},
    {"ffn_down_exps", "block_sparse_moe.experts.{e}.w2"},
};

void read(Keys& keys, ModelConfig& config) {
    config.window = keys.count_or({}, "sliding_window", 0);
    config.experts.renormalize = true;
    read_experts(keys, config);
}

void layer(OpMaker& maker, std::int32_t i) { maker.add_plain_layer(i); }

constexpr std::string_view kShapeKeys =
    R"("rms_norm_eps": 1e-5, "rope_theta": 1000000, "num_local_experts": 8, "num_experts_per_tok": 2)";
constexpr PublishedShape kShapes[] = {
    {"mixtral-8x7b", "mistralai/Mixtral-8x7B-Instruct-v0.1", 46.703,
     R"("num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32, "num_key_value_heads": 8,
     "intermediate_size": 14336, "max_position_embeddings": 32768, "vocab_size": 32000)"},
    {"mixtral-8x22b", "mistralai/Mixtral-8x22B-Instruct-v0.1", 140.631,
     R"("num_hidden_layers": 56, "hidden_size": 6144, "num_attention_heads": 48, "num_key_value_heads": 8,
     "intermediate_size": 16384, "max_position_embeddings": 65536, "vocab_size": 32768)"},
};

}  // namespace

const Architecture& mixtral_architecture() {
    static const Architecture architecture{.name = "mixtral",
                                           .hf_names = kHfNames,
                                           .hf_context_length = 32768,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
