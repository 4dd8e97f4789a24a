#include "core/models/shapes.h"

#include "base/error.h"

namespace foresay::core {
namespace {

struct PublishedShape {
    std::string_view name;
    std::string_view architecture;
    kernels::ModelShape shape;  // layers, width, heads, key-value heads, head width, feed-forward, vocabulary
    std::int32_t context_length;
    bool tied_head;
};

constexpr PublishedShape kShapes[] = {
    {"llama-3.2-1b", "llama", {16, 2048, 32, 8, 64, 8192, 128256}, 131072, false},
    {"llama-3.2-3b", "llama", {28, 3072, 24, 8, 128, 8192, 128256}, 131072, true},
    {"llama-3.1-8b", "llama", {32, 4096, 32, 8, 128, 14336, 128256}, 131072, false},
    {"llama-3.1-70b", "llama", {80, 8192, 64, 8, 128, 28672, 128256}, 131072, false},
    {"qwen2.5-coder-0.5b", "qwen2", {24, 896, 14, 2, 64, 4864, 151936}, 32768, true},
    {"qwen2.5-coder-1.5b", "qwen2", {28, 1536, 12, 2, 128, 8960, 151936}, 32768, true},
    {"qwen2.5-coder-3b", "qwen2", {36, 2048, 16, 2, 128, 11008, 151936}, 32768, true},
    {"qwen2.5-coder-7b", "qwen2", {28, 3584, 28, 4, 128, 18944, 152064}, 32768, false},
    {"qwen2.5-coder-14b", "qwen2", {48, 5120, 40, 8, 128, 13824, 152064}, 32768, false},
    {"qwen2.5-coder-32b", "qwen2", {64, 5120, 40, 8, 128, 27648, 152064}, 32768, false},
};

}  // namespace

ModelConfig published_shape(std::string_view name) {
    std::string known;
    for (const PublishedShape& entry : kShapes) {
        if (entry.name != name) {
            known += (known.empty() ? "" : ", ") + std::string(entry.name);
            continue;
        }
        ModelConfig config;
        config.architecture = entry.architecture;
        config.name = entry.name;
        config.shape = entry.shape;
        config.context_length = entry.context_length;
        config.tied_head = entry.tied_head;
        const bool qwen = entry.architecture == "qwen2";
        config.qkv_bias = qwen;
        config.norm_eps = qwen ? 1e-6f : 1e-5f;
        config.rope.theta = qwen ? 1000000.0f : 500000.0f;
        if (!qwen) {
            config.rope.scaling = RopeScaling::llama3;
            config.rope.factor = name.starts_with("llama-3.2") ? 32.0f : 8.0f;
        }
        return config;
    }
    throw Error("the shape '" + std::string(name) + "' is not known (known: " + known + ")");
}

std::vector<std::string> published_shape_names() {
    std::vector<std::string> names;
    for (const PublishedShape& entry : kShapes) names.emplace_back(entry.name);
    return names;
}

kernels::QuantType quant_type_by_name(std::string_view name) {
    std::string known;
    for (int i = 0; i < kernels::kQuantTypes; ++i) {
        const auto quant_type = static_cast<kernels::QuantType>(i);
        if (kernels::info(quant_type).name == name) return quant_type;
        known += (known.empty() ? "" : ", ") + std::string(kernels::info(quant_type).name);
    }
    throw Error("the quantisation type '" + std::string(name) + "' is not known (known: " + known + ")");
}

kernels::QuantType head_quant_type(kernels::QuantType quant_type) {
    using kernels::QuantType;
    const bool small = quant_type == QuantType::q4_0 || quant_type == QuantType::q4_k || quant_type == QuantType::q5_k;
    return small ? QuantType::q6_k : quant_type;
}

kernels::QuantType head_quant_type(kernels::QuantType quant_type, std::int64_t inputs) {
    const kernels::QuantType head = head_quant_type(quant_type);
    return inputs % kernels::info(head).block_elements == 0 ? head : kernels::QuantType::q8_0;
}

}  // namespace foresay::core
