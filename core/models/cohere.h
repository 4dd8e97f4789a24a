// core/models/cohere.h: what Command R and Command A (cohere2) share: LayerNorm, and attention and the feed-forward
// network side by side, from one norm.
#pragma once

#include "core/models/read_config.h"
#include "core/models/stages.h"

namespace foresay::core {

inline void read_cohere(Keys& keys, ModelConfig& config) {
    config.norm_kind = kernels::NormKind::layer;
    config.norm_eps = keys.number_or("attention.layer_norm_epsilon", "layer_norm_eps", 1e-5f);
    config.logit_scale = keys.number_or("logit_scale", "logit_scale", 0.0625f);
    keys.expect_flag({}, "attention_bias", false, "is true, which is not supported");
    keys.expect_flag({}, "use_parallel_block", true, "is false, which is not supported");
    keys.expect_flag({}, "use_embedding_sharing", true, "is false, which is not supported");
}

// Both branches read x before either is added to it.
inline void add_parallel_layer(StageMaker& stages, std::int32_t i, kernels::AttentionInSpec in) {
    stages.add(std::move(in));
    stages.add(stages.mlp_in(i, "attn_norm"));
    stages.add(stages.attend(i));
    stages.add(stages.attention_out(i));
    stages.add(stages.mlp_out(i));
}

}  // namespace foresay::core
