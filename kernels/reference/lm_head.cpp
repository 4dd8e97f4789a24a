// lm_head: logits = soft_cap(scale * weight . norm(x)) of the batch's logit rows.

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {
namespace {

struct LmHead : PreparedOp {
    Norm norm;
    Matrix matrix;
    float scale, cap;

    explicit LmHead(const LmHeadSpec& s) : norm(s.norm), matrix(s.weight), scale(s.scale), cap(s.soft_cap) {}
};

}  // namespace

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const LmHeadSpec& spec) { return make<LmHead>(spec); }

void ReferenceOps::lm_head(const PreparedOp& prepared, Workspace& workspace) {
    const auto& op = static_cast<const LmHead&>(prepared);
    auto& a = self(workspace);
    for (std::size_t i = 0; i < a.batch.logit_rows.size(); ++i) {
        float* logits = row(a.logits, i, op.matrix.outputs);
        op.norm.apply(row(a.x, static_cast<std::size_t>(a.batch.logit_rows[i]), a.shape.d_model), a.scratch.data());
        op.matrix.apply(a.scratch.data(), logits);
        for (int64_t v = 0; v < op.matrix.outputs; ++v) logits[v] = soft_cap(logits[v] * op.scale, op.cap);
    }
}

}  // namespace foresay::kernels::reference
