// kernels/cuda/rowwise/rope_cache.h: the tables of rope frequencies that the loaded models use.
//
// Layers with the same angles share a table, whose angles each forward computes once (kernels/cuda/rowwise/rows.h).
//
// Threads:  one caller at a time.
// Errors:   table() throws Error when kMaxRopes tables are in use.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/rowwise/rows.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

struct Rope {
    RopePairs pairs;
    std::vector<float> inverse_frequency;
    float attention_factor;
    std::size_t index;  // of its angles in a workspace
    DeviceBuffer<float> on_device;
};

class RopeCache {
public:
    // The table of a descriptor; null where there is nothing to rotate.
    std::shared_ptr<const Rope> table(const RopeSpec& spec);
    // Pairs of the table with an index below kMaxRopes; 0: it is not in use.
    std::size_t pairs_of(std::size_t index) const;

private:
    std::weak_ptr<const Rope> ropes_[kMaxRopes];
};

}  // namespace foresay::kernels::cuda
