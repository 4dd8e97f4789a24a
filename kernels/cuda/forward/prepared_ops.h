// kernels/cuda/forward/prepared_ops.h: what prepare() makes of each op's spec: its weights on the device and the
// constants of its launches.
//
// Layout:   one struct per kind of op. attention_out and mlp_out share one: both are x += W input + bias.
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
    DeviceNorm q_norm, k_norm;
    std::shared_ptr<const Rope> rope;  // null: none
    explicit PreparedAttentionIn(const AttentionInSpec& spec)
        : shape(spec.shape), linear(spec), q_norm(spec.q_norm), k_norm(spec.k_norm) {}
};
struct PreparedAttend : CudaPreparedOp {
    AttendSpec spec;
};
struct PreparedOut : CudaPreparedOp {  // attention_out and mlp_out
    OutLinear linear;
    DeviceNorm post_norm;
    template <class Spec>
    explicit PreparedOut(const Spec& spec) : linear(spec), post_norm(spec.post_norm) {}
};
struct PreparedMlpIn : CudaPreparedOp {
    MlpInLinear linear;
    explicit PreparedMlpIn(const MlpInSpec& spec) : linear(spec) {}
};
struct PreparedMoe : CudaPreparedOp {
    Mixture mixture;
    explicit PreparedMoe(const MoeSpec& spec) : mixture(spec) {}
};
struct PreparedLmHead : CudaPreparedOp {
    LmHeadLinear linear;
    explicit PreparedLmHead(const LmHeadSpec& spec) : linear(spec) {}
};

}  // namespace foresay::kernels::cuda
