// core/models/mixtral.cpp: Mixtral: Mistral with experts. Its GGUF files say llama.

#include "core/models/read_config.h"
#include "core/models/stages.h"

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

void layer(StageMaker& stages, std::int32_t i) { stages.add_plain_layer(i); }

}  // namespace

const Architecture& mixtral_architecture() {
    static const Architecture architecture{.name = "mixtral",
                                           .hf_names = kHfNames,
                                           .hf_context_length = 32768,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
