// mlp_out: adds the down projection of ff, which mlp_in left, to the residual stream (kernels/reference/projection.h).

#include "kernels/reference/projection.h"

namespace foresay::kernels::reference {

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const MlpOutSpec& spec) { return make<Projection>(spec); }

void ReferenceOps::mlp_out(const PreparedOp& prepared, Workspace& workspace) {
    static_cast<const Projection&>(prepared).add_to_residual(self(workspace), self(workspace).ff);
}

}  // namespace foresay::kernels::reference
