// mlp_out: x += [post_norm](down . ff), where ff is the output of mlp_in.

#include "kernels/reference/projection.h"

namespace foresay::kernels::reference {

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const MlpOutSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<Projection>(spec.down, TensorView{}, spec.post_norm);
    count_work(spec, *op);
    return op;
}

void ReferenceOps::mlp_out(const PreparedOp& prepared, Workspace& workspace) {
    static_cast<const Projection&>(prepared).add_to_residual(self(workspace), self(workspace).ff);
}

}  // namespace foresay::kernels::reference
