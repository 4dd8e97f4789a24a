// Rope tables by their contents. Prepared ops own the tables; the cache only holds weak pointers, so a table goes, and
// its index is free again, when the last op of its models does.

#include "kernels/cuda/rowwise/rope_cache.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace foresay::kernels::cuda {

std::shared_ptr<const Rope> RopeCache::table(const RopeSpec& spec) {
    if (spec.pairs == RopePairs::none || spec.inverse_frequency.empty()) return nullptr;
    std::vector<float> frequencies(spec.inverse_frequency.begin(), spec.inverse_frequency.end());
    // From the last index down, so that `free` ends as the lowest free one: workspaces keep memory for angles by index,
    // which is then used again.
    std::size_t free = kMaxRopes;
    for (std::size_t i = kMaxRopes; i-- > 0;) {
        const std::shared_ptr<const Rope> rope = ropes_[i].lock();
        if (!rope) {
            free = i;
        } else if (rope->pairs == spec.pairs && rope->attention_factor == spec.attention_factor &&
                   rope->inverse_frequency == frequencies) {
            return rope;
        }
    }
    if (free == kMaxRopes) {
        throw Error("the loaded models need more than " + std::to_string(kMaxRopes) +
                    " tables of rope angles, which is all that the cuda backend keeps; load fewer models");
    }
    DeviceBuffer<float> on_device = to_device<float>(frequencies);
    auto rope = std::make_shared<const Rope>(
        Rope{spec.pairs, std::move(frequencies), spec.attention_factor, free, std::move(on_device)});
    ropes_[free] = rope;
    return rope;
}

// By index, because workspaces allocate angles without knowing the specs.
std::size_t RopeCache::pairs_of(std::size_t index) const {
    const std::shared_ptr<const Rope> rope = ropes_[index].lock();
    return rope ? rope->inverse_frequency.size() : 0;
}

}  // namespace foresay::kernels::cuda
