// sample: a sampling plan for each logit row, to a token in a slot; by the host's sampler (kernels/sampling.h).

#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {

void ReferenceOps::sample(Activations& act, std::span<const SamplingPlan> plans, std::span<const int32_t> slots) {
    auto& a = self(act);
    a.kept.reserve(plans);
    for (std::size_t i = 0; i < plans.size(); ++i) {
        a.slots[slots[i]] = a.kept.sample(logits(act, static_cast<int32_t>(i)), plans[i], a.sampling_scratch, slots[i]);
    }
}

SampledToken ReferenceOps::sampled(Activations& act, int32_t slot) { return self(act).slots[slot]; }

Candidates ReferenceOps::candidates(Activations& act, int32_t slot) { return self(act).kept.at(slot); }

}  // namespace foresay::kernels::reference
