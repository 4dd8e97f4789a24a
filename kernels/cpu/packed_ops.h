// kernels/cpu/packed_ops.h: the prepared ops of the CPU backend: matrices packed into panels, norms and biases in
// float32.
#pragma once

#include <vector>

#include "kernels/cpu/panels.h"
#include "kernels/ops.h"
#include "kernels/routing.h"

namespace foresay::kernels::cpu {

struct Norm {
    std::vector<float> weight;  // empty: absent
    float eps = 0;
    NormKind kind = NormKind::rms;
    std::vector<float> bias;  // empty: none
    bool empty() const { return weight.empty(); }
};

struct EmbedOp : PreparedOp {
    EmbedSpec spec;
};

struct AttentionInOp : PreparedOp {
    ModelShape shape;
    Norm norm, q_norm, k_norm, v_norm;
    PanelMatrix q, k, v;  // k and v without panels: those of an earlier layer
    std::vector<float> q_bias, k_bias, v_bias;
    int rope = -1;                       // index into CpuOps::ropes_; -1: none
    bool codes = false, floats = false;  // whether some matrix reads int8 codes; float32
    bool whole_norms = false;
    QueryTemperature temperature;
};

struct AttendOp : PreparedOp {
    AttendSpec spec;
    std::vector<float> sinks;  // empty: none
};

// attention_out and mlp_out; without panels, mlp_out whose sums are there (LayerShare): x = stream_scale * (x + scale *
// [post_norm]([inner_norm](matrix . input + bias) [+ branch]))
struct ProjectionOp : PreparedOp {
    PanelMatrix matrix;
    std::vector<float> bias;
    Norm post_norm, inner_norm;
    bool add_branch = false;
    float scale = 1, stream_scale = 1;

    // Whether the product is added to x as it is.
    bool direct() const {
        return bias.empty() && post_norm.empty() && inner_norm.empty() && !add_branch && scale == 1.0f &&
               stream_scale == 1.0f;
    }
};

struct MlpInOp : PreparedOp {
    Norm norm;
    PanelMatrix gate, up;  // gate without panels: none
    Activation activation = Activation::silu;
    bool codes = false, floats = false;
    std::vector<float> gate_bias, up_bias;  // padded to 16; empty: none
    float limit = 0;

    // Whether one kernel multiplies both and activates.
    bool fused() const { return gate.panels > 0 && gate_bias.empty() && up_bias.empty() && fuses(activation); }
    static bool fuses(Activation a) { return a == Activation::silu || a == Activation::gelu_tanh; }
};

// The parts of moe that an op runs (LayerShare).
enum class MoePart : std::uint8_t { whole, experts, sum };

struct MoeOp : PreparedOp {
    MoePart part = MoePart::whole;
    Norm norm, post_norm, router_norm;
    PanelMatrix router;  // float32
    RoutingRules rules;
    std::vector<PanelMatrix> gate, up, down;  // of each expert; without panels: another backend has it
    std::vector<std::vector<float>> gate_bias, up_bias, down_bias;  // of each expert, padded to 16; empty: none
    bool codes = false, floats = false, down_codes = false, down_floats = false;
    Activation activation = Activation::silu;
    float limit = 0, scale = 1, stream_scale = 1;
    bool keep_branch = false;

    MoeOp(const RouterSpec& spec, const ModelShape& shape) : rules(spec, shape) {}
    bool fused() const { return gate_bias.empty() && up_bias.empty() && MlpInOp::fuses(activation); }
    bool has(std::size_t expert) const { return gate[expert].panels > 0; }
};

struct PerLayerEmbedOp : PreparedOp {
    TensorView table;
    PanelMatrix projection;
    Norm norm;
    float table_scale = 1, projection_scale = 1, scale = 1;
};

struct PerLayerOp : PreparedOp {
    std::int32_t layer = 0;
    PanelMatrix gate, projection;
    Norm post_norm;
    Activation activation = Activation::gelu_tanh;
    float stream_scale = 1;
};

struct LmHeadOp : PreparedOp {
    Norm norm;
    PanelMatrix matrix;
    float scale = 1, soft_cap = 0;
};

}  // namespace foresay::kernels::cpu
