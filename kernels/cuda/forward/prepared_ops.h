// kernels/cuda/forward/prepared_ops.h: what prepare() makes of each op's descriptor.
#pragma once

#include <memory>

#include "kernels/cuda/linear.h"
#include "kernels/cuda/rowwise/rope_cache.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

// What prepared ops of any kind have in common; `id` is never used twice, unlike an address.
struct PreparedOp : PreparedOp {
    std::uint64_t id = 0;
};

struct PreparedEmbed : PreparedOp {
    DeviceBuffer<std::byte> table;
    QuantType quant_type = QuantType::f32;
    std::int64_t vocab = 0;
    float scale = 1.0f;
};
struct PreparedAttentionIn : PreparedOp {
    ModelShape shape;
    AttentionInLinear linear;
    DeviceNorm q_norm, k_norm;
    std::shared_ptr<const Rope> rope;  // null: none
    explicit PreparedAttentionIn(const AttentionInSpec& spec)
        : shape(spec.shape), linear(spec), q_norm(spec.q_norm), k_norm(spec.k_norm) {}
};
struct PreparedAttend : PreparedOp {
    AttendSpec spec;
};
struct PreparedOut : PreparedOp {  // attention_out and mlp_out
    OutLinear linear;
    DeviceNorm post_norm;
    template <class Spec>
    explicit PreparedOut(const Spec& spec) : linear(spec), post_norm(spec.post_norm) {}
};
struct PreparedMlpIn : PreparedOp {
    MlpInLinear linear;
    explicit PreparedMlpIn(const MlpInSpec& spec) : linear(spec) {}
};
struct PreparedHead : PreparedOp {
    HeadLinear linear;
    explicit PreparedHead(const LmHeadSpec& spec) : linear(spec) {}
};

}  // namespace foresay::kernels::cuda
