// kernels/cuda/forward/prepared_ops.h: what prepare() makes of each op's spec: its weights on the device and the
// constants of its launches.
//
// Layout:   one struct per kind of op. attention_out and mlp_out share one: both add a branch to x. Those of per-layer
//           embeddings are in kernels/cuda/forward/per_layer.h.
// Threads:  not changed after prepare(), so any number of forwards may read it.
#pragma once

#include <memory>

#include "kernels/cuda/experts/mixture.h"
#include "kernels/cuda/linear.h"
#include "kernels/cuda/rowwise/rope_cache.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

// What prepared ops of any kind have in common; `id` is never used twice, unlike an address.
struct CudaPreparedOp : PreparedOp {
    std::uint64_t id = 0;
};

struct PreparedEmbed : CudaPreparedOp {
    DeviceBuffer<std::byte> table;
    QuantType quant_type = QuantType::f32;
    std::int64_t vocab = 0;
    float scale = 1.0f;
};
struct PreparedAttentionIn : CudaPreparedOp {
    ModelShape shape;
    AttentionInLinear linear;
    DeviceNorm norm;  // of the inputs, where the matrix kernels cannot apply it
    DeviceNorm q_norm, k_norm, v_norm;
    bool whole_norms;
    QueryTemperature temperature;
    std::shared_ptr<const Rope> rope;  // null: none
    // `whole`, here and below, as in linear.h.
    explicit PreparedAttentionIn(const AttentionInSpec& spec, WholeStack whole = {})
        : shape(spec.shape),
          linear(spec, whole),
          norm(row_norm(spec.norm)),
          q_norm(spec.q_norm),
          k_norm(spec.k_norm),
          v_norm(spec.v_norm),
          whole_norms(spec.whole_norms),
          temperature(spec.temperature) {}

    bool has_kv() const { return linear.has_kv(); }
    // Whether projected heads need more than a bias and rope: a kernel of their own.
    bool finishes_heads() const { return linear.has_head_norms() || temperature.beta != 0.0f; }
    // Whether the attention of decode rows can do that: RMS norms of Q and K with one weight for all heads.
    bool attention_finishes() const {
        const auto plain = [&](const DeviceNorm& norm) {
            return norm.empty() || (!norm.centered && norm.weight.size() == static_cast<std::size_t>(shape.head_dim));
        };
        return has_kv() && plain(q_norm) && plain(k_norm) && v_norm.empty() && !whole_norms &&
               temperature.beta == 0.0f &&
               can_finish_heads(shape.head_dim, rope ? rope->pairs : RopePairs::none, rope_pairs());
    }
    std::int32_t rope_pairs() const { return rope ? static_cast<std::int32_t>(rope->inverse_frequency.size()) : 0; }
};
struct PreparedAttend : CudaPreparedOp {
    AttendSpec spec;
    DeviceBuffer<float> sinks;
};
struct PreparedOut : CudaPreparedOp {  // attention_out and mlp_out
    OutLinear linear;
    DeviceNorm inner_norm, post_norm;
    float scale, stream_scale = 1.0f;
    bool add_branch = false;
    bool has_sums = false;  // they are in `raw` already (LayerShare::prepare_finish)
    explicit PreparedOut(const AttentionOutSpec& spec) : linear(spec), post_norm(spec.post_norm), scale(spec.scale) {}
    explicit PreparedOut(const MlpOutSpec& spec, WholeStack whole = {})
        : linear(spec.down.empty() ? OutLinear() : OutLinear(spec, whole)),
          inner_norm(spec.inner_norm),
          post_norm(spec.post_norm),
          scale(spec.scale),
          stream_scale(spec.stream_scale),
          add_branch(spec.add_branch),
          has_sums(spec.down.empty()) {}

    // Whether the sums need more than a factor before they join the residual stream: a kernel of their own.
    bool finishes_rows() const {
        return !inner_norm.empty() || !post_norm.empty() || stream_scale != 1.0f || add_branch;
    }
};
struct PreparedMlpIn : CudaPreparedOp {
    MlpInLinear linear;
    DeviceNorm norm;  // as in PreparedAttentionIn
    explicit PreparedMlpIn(const MlpInSpec& spec, WholeStack whole = {})
        : linear(spec, whole), norm(row_norm(spec.norm)) {}
};
struct PreparedMoe : CudaPreparedOp {
    Mixture mixture;
    explicit PreparedMoe(const MoeSpec& spec) : mixture(spec) {}
    PreparedMoe(const MoeSpec& spec, MixtureWork work, OwnExperts own = {}) : mixture(spec, work, own) {}
};
struct PreparedLmHead : CudaPreparedOp {
    LmHeadLinear linear;
    DeviceNorm norm;  // as in PreparedAttentionIn
    explicit PreparedLmHead(const LmHeadSpec& spec) : linear(spec), norm(row_norm(spec.norm)) {}
};

}  // namespace foresay::kernels::cuda
