// mlp_in: ff = activation(gate . [norm](x) + gate_bias) * (up . [norm](x) + up_bias), or without a gate
// activation(up . [norm](x) + up_bias).

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {
namespace {

struct MlpIn : PreparedOp {
    Norm norm;
    Matrix gate, up;
    Floats gate_bias, up_bias;
    Activation activation;
    float limit;

    explicit MlpIn(const MlpInSpec& s)
        : norm(s.norm),
          gate(s.gate),
          up(s.up),
          gate_bias(dequantize(s.gate_bias)),
          up_bias(dequantize(s.up_bias)),
          activation(s.activation),
          limit(s.limit) {}
};

}  // namespace

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const MlpInSpec& spec) { return make<MlpIn>(spec); }

void ReferenceOps::mlp_in(const PreparedOp& prepared, Workspace& workspace) {
    const auto& op = static_cast<const MlpIn&>(prepared);
    auto& a = self(workspace);
    const bool gate = op.gate.outputs > 0;
    Floats up(static_cast<std::size_t>(op.up.outputs));
    for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
        const float* x = normed(op.norm, row(a.x, t, a.shape.d_model), a.scratch.data());
        float* ff = row(a.ff, t, op.up.outputs);
        op.up.apply(x, up.data());
        add(up.data(), op.up_bias);
        if (gate) {
            op.gate.apply(x, ff);
            add(ff, op.gate_bias);
        }
        for (std::size_t i = 0; i < up.size(); ++i) {
            ff[i] = gated(op.activation, op.limit, gate ? ff[i] : up[i], gate ? &up[i] : nullptr);
        }
    }
}

}  // namespace foresay::kernels::reference
