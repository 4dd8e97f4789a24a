// core/models/qwen2.cpp: Qwen2 and Qwen2.5, the Coder models included: Llama's layout with biases on Q, K and V.

#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"qwen2"};
constexpr std::string_view kHfNames[] = {"Qwen2ForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    keys.expect_flag({}, "use_sliding_window", false, "is true: sliding-window attention is not supported here");
    keys.ignore({"sliding_window", "layer_types"});  // of no effect without use_sliding_window
    config.qkv_bias = true;
}

void layer(StageMaker& stages, std::int32_t i) { stages.add_plain_layer(i); }

ModelConfig shape(kernels::ModelShape widths, bool tied) {
    ModelConfig config;
    config.shape = widths;
    config.context_length = 32768;
    config.tied_head = tied;
    config.qkv_bias = true;
    config.norm_eps = 1e-6f;
    config.rope.theta = 1000000.0f;
    return config;
}

// Layers, width, heads, key-value heads, head width, feed-forward, vocabulary.
constexpr PublishedShape kShapes[] = {
    {"qwen2.5-coder-0.5b",
     [] {
         return shape({24, 896, 14, 2, 64, 4864, 151936}, true);
     }},
    {"qwen2.5-coder-1.5b",
     [] {
         return shape({28, 1536, 12, 2, 128, 8960, 151936}, true);
     }},
    {"qwen2.5-coder-3b",
     [] {
         return shape({36, 2048, 16, 2, 128, 11008, 151936}, true);
     }},
    {"qwen2.5-coder-7b",
     [] {
         return shape({28, 3584, 28, 4, 128, 18944, 152064}, false);
     }},
    {"qwen2.5-coder-14b",
     [] {
         return shape({48, 5120, 40, 8, 128, 13824, 152064}, false);
     }},
    {"qwen2.5-coder-32b",
     [] {
         return shape({64, 5120, 40, 8, 128, 27648, 152064}, false);
     }},
};

}  // namespace

const Architecture& qwen2_architecture() {
    static const Architecture architecture{.name = "qwen2",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 32768,
                                           .read = read,
                                           .layer = layer,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
