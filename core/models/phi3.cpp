// core/models/phi3.cpp: Phi-3 and Phi-4: Llama's layout with Q, K and V in one matrix, and gate and up in another; long
// contexts by a second list of rope factors.

#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"phi3"};
constexpr std::string_view kHfNames[] = {"Phi3ForCausalLM"};
constexpr HfName kHfTensors[] = {
    {"attn_qkv", "self_attn.qkv_proj"},
    {"ffn_up", "mlp.gate_up_proj"},
};

void read(Keys& keys, ModelConfig& config) {
    config.window = keys.count_or("attention.sliding_window", "sliding_window", 0);
    // The first counts for longrope only; the others are 1 in published files.
    keys.ignore({"original_max_position_embeddings", "interpolate_factor", "full_attn_mod"});
    keys.expect_flag({}, "attention_bias", false, "is true, which is not supported");
}

void layer(StageMaker& stages, std::int32_t i) {
    stages.add_attention(i);
    stages.add(stages.fused_mlp_in(i));
    stages.add(stages.mlp_out(i));
}

}  // namespace

const Architecture& phi3_architecture() {
    static const Architecture architecture{.name = "phi3",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 4096,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
