// sample: runs each logit row's sampling plan with the host sampler (kernels/sampling.h) and fills its token slot.

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {

void ReferenceOps::sample(Workspace& workspace, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) {
    auto& a = self(workspace);
    a.kept.reserve(plans);
    for (std::size_t i = 0; i < plans.size(); ++i) {
        a.slots[slots[i]] =
            a.kept.sample(logits(workspace, static_cast<int32_t>(i)), plans[i], a.sampling_scratch, slots[i]);
    }
}

SampledToken ReferenceOps::sampled(Workspace& workspace, int32_t slot) { return self(workspace).slots[slot]; }

Candidates ReferenceOps::candidates(Workspace& workspace, int32_t slot) { return self(workspace).kept.at(slot); }

}  // namespace foresay::kernels::reference
