// attention_out: x += [post_norm](o . attended + bias), where attended is the output of attend.

#include "kernels/reference/projection.h"

namespace foresay::kernels::reference {

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const AttentionOutSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<Projection>(spec.o, spec.bias, spec.post_norm);
    count_work(spec, *op);
    return op;
}

void ReferenceOps::attention_out(const PreparedOp& prepared, Workspace& workspace) {
    static_cast<const Projection&>(prepared).add_to_residual(self(workspace), self(workspace).attended);
}

}  // namespace foresay::kernels::reference
