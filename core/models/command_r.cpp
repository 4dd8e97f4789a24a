// core/models/command_r.cpp: Command R and R+. R+ norms Q and K, with weights of its own for each head.

#include "core/models/cohere.h"
#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"command-r"};
constexpr std::string_view kHfNames[] = {"CohereForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    read_cohere(keys, config);
    config.head_norms = keys.gguf() ? keys.has_tensor(0, "attn_q_norm") : keys.flag_or({}, "use_qk_norm", false);
}

// A norm with weights per head, which files store as [heads, head width].
kernels::NormSpec head_norm(OpMaker& maker, std::int32_t i, std::string_view name, std::int64_t heads,
                            std::int64_t width) {
    kernels::TensorView weight = maker.matrix(i, name, heads, width);
    weight.cols *= weight.rows;
    weight.rows = 1;
    return {.weight = weight, .eps = maker.config().norm_eps, .kind = kernels::NormKind::layer};
}

void layer(OpMaker& maker, std::int32_t i) {
    const LayerConfig own = maker.layer(i);
    kernels::AttentionInSpec in = maker.attention_in(i, "attn_norm", false);
    if (maker.config().head_norms) {
        in.q_norm = head_norm(maker, i, "attn_q_norm", own.heads, own.head_dim);
        in.k_norm = head_norm(maker, i, "attn_k_norm", own.kv_heads, own.head_dim);
    }
    add_parallel_layer(maker, i, std::move(in));
}

constexpr std::string_view kShapeKeys =
    R"("layer_norm_eps": 1e-5, "vocab_size": 256000, "max_position_embeddings": 131072)";
constexpr PublishedShape kShapes[] = {
    {"command-r-35b", "CohereForAI/c4ai-command-r-v01", 34.981,
     R"("num_hidden_layers": 40, "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 64,
     "intermediate_size": 22528, "logit_scale": 0.0625, "rope_theta": 8000000)"},
    {"command-r-32b", "CohereForAI/c4ai-command-r-08-2024", 32.297,
     R"("num_hidden_layers": 40, "hidden_size": 8192, "num_attention_heads": 64, "num_key_value_heads": 8,
     "intermediate_size": 24576, "logit_scale": 0.0625, "rope_theta": 4000000)"},
    {"command-r-plus-104b", "CohereForAI/c4ai-command-r-plus-08-2024", 103.811,
     R"("num_hidden_layers": 64, "hidden_size": 12288, "num_attention_heads": 96, "num_key_value_heads": 8,
     "intermediate_size": 33792, "logit_scale": 0.8333333333333334, "rope_theta": 8000000, "use_qk_norm": true)"},
};

}  // namespace

const Architecture& command_r_architecture() {
    static const Architecture architecture{.name = "command_r",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .gguf_rope = kernels::RopePairs::adjacent,
                                           .hf_rope = kernels::RopePairs::adjacent,
                                           .hf_context_length = 8192,
                                           .hf_tied = true,
                                           .read = read,
                                           .layer = layer,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
