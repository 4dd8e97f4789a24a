// core/models/qwen2.cpp: Qwen2 and Qwen2.5, the Coder models included: Llama's layout with biases on Q, K and V.

#include "base/error.h"
#include "core/models/architecture.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"qwen2"};
constexpr std::string_view kHfNames[] = {"Qwen2ForCausalLM"};

void read_gguf(const GgufFile&, const std::string&, ModelConfig& config) { config.qkv_bias = true; }

void read_hf(const JsonConfig& json, ModelConfig& config) {
    if (json.get_bool_or("use_sliding_window", false)) {
        throw Error(json.path() + ": sliding-window attention (use_sliding_window) is not supported");
    }
    config.qkv_bias = true;
}

}  // namespace

const Architecture& qwen2_architecture() {
    static const Architecture architecture{
        .name = "qwen2",
        .gguf_names = kGgufNames,
        .hf_names = kHfNames,
        .gguf_tensors = common_gguf_names(),
        .hf_tensors = common_hf_names(),
        .gguf_rope = kernels::RopePairs::half_split,
        .hf_rope = kernels::RopePairs::half_split,
        .hf_context_length = 32768,
        .read_gguf = read_gguf,
        .read_hf = read_hf,
    };
    return architecture;
}

}  // namespace foresay::core
