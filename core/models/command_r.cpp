// core/models/command_r.cpp: Command R and R+. R+ norms Q and K, with weights of its own for each head.

#include "core/models/cohere.h"
#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"command-r"};
constexpr std::string_view kHfNames[] = {"CohereForCausalLM"};

void read(Keys& keys, ModelConfig& config) {
    read_cohere(keys, config);
    config.head_norms = keys.gguf() ? keys.has_tensor(0, "attn_q_norm") : keys.flag_or({}, "use_qk_norm", false);
}

// A norm with weights per head, which files store as [heads, head width].
kernels::NormSpec head_norm(StageMaker& stages, std::int32_t i, std::string_view name, std::int64_t heads,
                            std::int64_t width) {
    kernels::TensorView weight = stages.matrix(i, name, heads, width);
    weight.cols *= weight.rows;
    weight.rows = 1;
    return {.weight = weight, .eps = stages.config().norm_eps, .kind = kernels::NormKind::layer};
}

void layer(StageMaker& stages, std::int32_t i) {
    const LayerConfig own = stages.layer(i);
    kernels::AttentionInSpec in = stages.attention_in(i, "attn_norm", false);
    if (stages.config().head_norms) {
        in.q_norm = head_norm(stages, i, "attn_q_norm", own.heads, own.head_dim);
        in.k_norm = head_norm(stages, i, "attn_k_norm", own.kv_heads, own.head_dim);
    }
    add_parallel_layer(stages, i, std::move(in));
}

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
                                           .layer = layer};
    return architecture;
}

}  // namespace foresay::core
