// core/models/llama.cpp: Llama 1 to 3 and the many models that share their layout.

#include <string>

#include "base/error.h"
#include "core/models/architecture.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"llama"};
constexpr std::string_view kHfNames[] = {"LlamaForCausalLM"};

void read_gguf(const GgufFile& file, const std::string& prefix, ModelConfig& config) {
    if (file.get_int_or(prefix + "expert_count", 0) > 0) {
        throw Error(file.path() + ": a mixture of experts is not supported; use a dense Llama or Qwen2 model");
    }
    if (file.tensors().has("blk.0.ffn_gate.bias")) {
        throw Error(file.path() + ": biases in the feed-forward layers are not supported");
    }
    config.qkv_bias = file.tensors().has("blk.0.attn_q.bias");
    config.attention_out_bias = file.tensors().has("blk.0.attn_output.bias");
}

void read_hf(const JsonConfig& json, ModelConfig& config) {
    if (json.get_bool_or("mlp_bias", false)) {
        throw Error(json.path() + ": biases in the feed-forward layers (mlp_bias) are not supported");
    }
    config.qkv_bias = config.attention_out_bias = json.get_bool_or("attention_bias", false);
}

}  // namespace

const Architecture& llama_architecture() {
    static const Architecture architecture{
        .name = "llama",
        .gguf_names = kGgufNames,
        .hf_names = kHfNames,
        .gguf_tensors = common_gguf_names(),
        .hf_tensors = common_hf_names(),
        .gguf_rope = kernels::RopePairs::adjacent,
        .hf_rope = kernels::RopePairs::half_split,
        .hf_context_length = 2048,
        .read_gguf = read_gguf,
        .read_hf = read_hf,
    };
    return architecture;
}

}  // namespace foresay::core
