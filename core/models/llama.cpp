// core/models/llama.cpp: Llama 1 to 3 and the many models that share their layout. GGUF files of Mistral and Mixtral
// name this architecture, too.

#include <string>

#include "base/error.h"
#include "core/models/read_config.h"
#include "core/models/stages.h"

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

void layer(StageMaker& stages, std::int32_t i) { stages.add_plain_layer(i); }

ModelConfig shape(kernels::ModelShape widths, float rope_factor, bool tied) {
    ModelConfig config;
    config.shape = widths;
    config.context_length = 131072;
    config.tied_head = tied;
    config.norm_eps = 1e-5f;
    config.rope.theta = 500000.0f;
    config.rope.scaling = RopeScaling::llama3;
    config.rope.factor = rope_factor;
    return config;
}

// Layers, width, heads, key-value heads, head width, feed-forward, vocabulary. The 1B shape has an untied LM head here,
// as in other projects' benchmarks.
constexpr PublishedShape kShapes[] = {
    {"llama-3.2-1b",
     [] {
         return shape({16, 2048, 32, 8, 64, 8192, 128256}, 32.0f, false);
     }},
    {"llama-3.2-3b",
     [] {
         return shape({28, 3072, 24, 8, 128, 8192, 128256}, 32.0f, true);
     }},
    {"llama-3.1-8b",
     [] {
         return shape({32, 4096, 32, 8, 128, 14336, 128256}, 8.0f, false);
     }},
    {"llama-3.1-70b",
     [] {
         return shape({80, 8192, 64, 8, 128, 28672, 128256}, 8.0f, false);
     }},
};

}  // namespace

const Architecture& llama_architecture() {
    static const Architecture architecture{.name = "llama",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .gguf_rope = kernels::RopePairs::adjacent,
                                           .read = read,
                                           .layer = layer,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
