// kernels/cpu/stages.h: the stages of kernels/ops.h as the CPU backend keeps them: weights in panels, norms in float32.
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

struct EmbedStage : Prepared {
    EmbedSpec spec;
};

struct AttentionInStage : Prepared {
    ModelShape shape;
    Norm norm, q_norm, k_norm;
    PanelMatrix q, k, v;
    std::vector<float> q_bias, k_bias, v_bias;
    int rope = -1;                       // index into the backend's rope tables; -1: none
    bool codes = false, floats = false;  // which forms of its input the matrices read
};

struct AttendStage : Prepared {
    AttendSpec spec;
};

// attention_out and mlp_out: x += [post_norm](matrix . input + bias)
struct OutStage : Prepared {
    PanelMatrix matrix;
    std::vector<float> bias;
    Norm post_norm;
};

struct MlpInStage : Prepared {
    Norm norm;
    PanelMatrix gate, up;
    Activation activation = Activation::silu;
    bool codes = false, floats = false;
};

struct HeadStage : Prepared {
    Norm norm;
    PanelMatrix matrix;
    float scale = 1, soft_cap = 0;
};

}  // namespace foresay::kernels::cpu
