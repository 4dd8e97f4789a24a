// kernels/cpu/packed_ops.h: the prepared ops of the CPU backend: matrices packed into panels, norms and biases in
// float32.
#pragma once

#include <vector>

#include "kernels/cpu/panels.h"
#include "kernels/ops.h"

namespace foresay::kernels::cpu {

struct Norm {
    std::vector<float> weight;  // empty: absent
    float eps = 0;
    bool empty() const { return weight.empty(); }
};

struct EmbedOp : PreparedOp {
    EmbedSpec spec;
};

struct AttentionInOp : PreparedOp {
    ModelShape shape;
    Norm norm, q_norm, k_norm;
    PanelMatrix q, k, v;
    std::vector<float> q_bias, k_bias, v_bias;
    int rope = -1;                       // index into CpuOps::ropes_; -1: none
    bool codes = false, floats = false;  // whether some matrix reads int8 codes; float32
};

struct AttendOp : PreparedOp {
    AttendSpec spec;
};

// attention_out and mlp_out: x += [post_norm](matrix . input + bias)
struct ProjectionOp : PreparedOp {
    PanelMatrix matrix;
    std::vector<float> bias;
    Norm post_norm;
};

struct MlpInOp : PreparedOp {
    Norm norm;
    PanelMatrix gate, up;
    Activation activation = Activation::silu;
    bool codes = false, floats = false;
};

struct LmHeadOp : PreparedOp {
    Norm norm;
    PanelMatrix matrix;
    float scale = 1, soft_cap = 0;
};

}  // namespace foresay::kernels::cpu
