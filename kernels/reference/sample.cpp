// sample: runs each logit row's sampling plan with the host sampler (kernels/sampling.h) and fills its token slot.

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {

void ReferenceOps::sample(Workspace& workspace, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) {
    self(workspace).slots.sample(plans, slots, [&](int32_t i) { return logits(workspace, i); });
}

SampledToken ReferenceOps::sampled(Workspace& workspace, int32_t slot) { return self(workspace).slots.sampled(slot); }

Candidates ReferenceOps::candidates(Workspace& workspace, int32_t slot) {
    return self(workspace).slots.candidates(slot);
}

}  // namespace foresay::kernels::reference
