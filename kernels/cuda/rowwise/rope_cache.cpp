// Rope tables by their angles; the cache holds them weakly, the prepared ops keep them.

#include "kernels/cuda/rowwise/rope_cache.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace foresay::kernels::cuda {

std::shared_ptr<const Rope> RopeCache::table(const RopeSpec& spec) {
    if (spec.pairs == RopePairs::none || spec.inverse_frequency.empty()) return nullptr;
    std::vector<float> frequencies(spec.inverse_frequency.begin(), spec.inverse_frequency.end());
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
        throw Error("the cuda backend keeps " + std::to_string(kMaxRopes) +
                    " tables of rope angles at a time, and the models loaded need more; load fewer models");
    }
    DeviceBuffer<float> on_device = to_device<float>(frequencies);
    auto rope = std::make_shared<const Rope>(
        Rope{spec.pairs, std::move(frequencies), spec.attention_factor, free, std::move(on_device)});
    ropes_[free] = rope;
    return rope;
}

std::size_t RopeCache::pairs_of(std::size_t index) const {
    const std::shared_ptr<const Rope> rope = ropes_[index].lock();
    return rope ? rope->inverse_frequency.size() : 0;
}

}  // namespace foresay::kernels::cuda
