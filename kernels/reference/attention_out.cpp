// attention_out: x += [post_norm](o . attended + bias), where attended is what attend left.

#include "kernels/reference/projection.h"

namespace foresay::kernels::reference {

std::unique_ptr<Prepared> ReferenceOps::prepare(const AttentionOutSpec& spec) {
    check_stage(spec);
    auto op = std::make_unique<Projection>(spec.o, spec.bias, spec.post_norm);
    count_work(spec, *op);
    return op;
}

void ReferenceOps::attention_out(const Prepared& prepared, Activations& act) {
    static_cast<const Projection&>(prepared).add_to_residual(self(act), self(act).attended);
}

}  // namespace foresay::kernels::reference
