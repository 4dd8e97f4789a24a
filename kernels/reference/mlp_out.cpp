// mlp_out: x += [post_norm](down . ff), where ff is what mlp_in left.

#include "kernels/reference/projection.h"

namespace foresay::kernels::reference {

std::unique_ptr<Prepared> ReferenceOps::prepare(const MlpOutSpec& spec) {
    check_stage(spec);
    auto op = std::make_unique<Projection>(spec.down, TensorView{}, spec.post_norm);
    count_work(spec, *op);
    return op;
}

void ReferenceOps::mlp_out(const Prepared& prepared, Activations& act) {
    static_cast<const Projection&>(prepared).add_to_residual(self(act), self(act).ff);
}

}  // namespace foresay::kernels::reference
