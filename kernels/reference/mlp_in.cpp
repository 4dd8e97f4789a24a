// mlp_in: ff = activation(gate . norm(x)) * (up . norm(x)).

#include <cmath>

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {
namespace {

struct MlpIn : PreparedOp {
    Norm norm;
    Matrix gate, up;
    Activation activation;

    explicit MlpIn(const MlpInSpec& s) : norm(s.norm), gate(s.gate), up(s.up), activation(s.activation) {}
};

float activate(Activation kind, float x) {
    if (kind == Activation::silu) return static_cast<float>(x / (1.0 + std::exp(-static_cast<double>(x))));
    const double cubic = 0.7978845608028654 * (x + 0.044715 * x * static_cast<double>(x) * x);
    return static_cast<float>(0.5 * x * (1.0 + std::tanh(cubic)));
}

}  // namespace

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const MlpInSpec& spec) { return make<MlpIn>(spec); }

void ReferenceOps::mlp_in(const PreparedOp& prepared, Workspace& workspace) {
    const auto& op = static_cast<const MlpIn&>(prepared);
    auto& a = self(workspace);
    Floats up(static_cast<std::size_t>(op.up.outputs));
    for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
        float* normed = a.scratch.data();
        float* gate = row(a.ff, t, op.gate.outputs);
        op.norm.apply(row(a.x, t, a.shape.d_model), normed);
        op.gate.apply(normed, gate);
        op.up.apply(normed, up.data());
        for (std::size_t i = 0; i < up.size(); ++i) gate[i] = activate(op.activation, gate[i]) * up[i];
    }
}

}  // namespace foresay::kernels::reference
