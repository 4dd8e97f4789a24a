// core/models/cohere.h: what Command R and Command A (cohere2) share: LayerNorm, and attention and the feed-forward
// network side by side, from one norm.
#pragma once

#include "core/models/op_maker.h"
#include "core/models/read_config.h"

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
inline void add_parallel_layer(OpMaker& maker, std::int32_t i, kernels::AttentionInSpec in) {
    maker.add(std::move(in));
    maker.add(maker.mlp_in(i, "attn_norm"));
    maker.add(maker.attend(i));
    maker.add(maker.attention_out(i));
    maker.add(maker.mlp_out(i));
}

}  // namespace foresay::core
