// attention_out: x += scale * [post_norm](o . attended + bias), where attended is the output of attend.

#include "kernels/reference/projection.h"

namespace foresay::kernels::reference {

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const AttentionOutSpec& spec) { return make<Projection>(spec); }

void ReferenceOps::attention_out(const PreparedOp& prepared, Workspace& workspace) {
    static_cast<const Projection&>(prepared).add_to_residual(self(workspace), self(workspace).attended);
}

}  // namespace foresay::kernels::reference
