// core/models/qwen3.cpp: Qwen3: Llama's layout with norms of Q and K per head.

#include "core/models/read_config.h"
#include "core/models/stages.h"

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

void layer(StageMaker& stages, std::int32_t i) { stages.add_plain_layer(i); }

}  // namespace

const Architecture& qwen3_architecture() {
    static const Architecture architecture{.name = "qwen3",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 32768,
                                           .read = read,
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
