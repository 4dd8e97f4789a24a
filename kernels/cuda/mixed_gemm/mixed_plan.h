// kernels/cuda/mixed_gemm/mixed_plan.h: how a launch of mixed_gemm is divided into units, and the ring's depth.
//
// Only speed depends on the plan, never the bits of a row.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/quant_type.h"

namespace foresay::kernels::cuda {

inline constexpr int kMixedTile = 128;  // rows of the batch of one CTA, at most
inline constexpr int kMaxMixedStages = 16;
inline constexpr int kMixedFlagAt = 16 * kMaxMixedStages;  // after the barriers: whether the CTA came last
inline constexpr int kMixedRingAt = kMixedFlagAt + 128;

struct MixedPlan {
    std::int32_t panels = 0, sets = 0,
                 columns = 0;  // of a CTA; warpgroups that share its panels; rows of each
    std::int32_t cluster = 1;  // CTAs that share the rows of the batch
    std::int32_t token_tiles = 0, row_tiles = 0, units = 0;
    std::int32_t stages = 0, shared_bytes = 0;
};

// Calls visit(panels, sets, columns, cluster), constants, for each tile that exists for a type: panels / 2 * sets
// warpgroups for sets * columns rows of the batch. Tiles of few panels divide a small matrix among more
// multiprocessors.
template <QuantType E, class Visit>
void visit_mixed_tiles(const Visit& visit) {
    const auto tile = [&](auto panels, auto sets, auto columns, auto cluster) {
        visit(panels, sets, columns, cluster);
    };
    using std::integral_constant;
    tile(integral_constant<int, 8>(), integral_constant<int, 1>(), integral_constant<int, 32>(),
         integral_constant<int, 1>());
    tile(integral_constant<int, 4>(), integral_constant<int, 2>(), integral_constant<int, 16>(),
         integral_constant<int, 1>());
    tile(integral_constant<int, 2>(), integral_constant<int, 4>(), integral_constant<int, 8>(),
         integral_constant<int, 1>());
    tile(integral_constant<int, 4>(), integral_constant<int, 1>(), integral_constant<int, 64>(),
         integral_constant<int, 2>());
    tile(integral_constant<int, 2>(), integral_constant<int, 2>(), integral_constant<int, 32>(),
         integral_constant<int, 2>());
    tile(integral_constant<int, 2>(), integral_constant<int, 2>(), integral_constant<int, 64>(),
         integral_constant<int, 2>());
    if constexpr (E == QuantType::q4_0) {  // EXPERIMENT
        tile(integral_constant<int, 4>(), integral_constant<int, 1>(), integral_constant<int, 64>(),
             integral_constant<int, 1>());
        tile(integral_constant<int, 4>(), integral_constant<int, 1>(), integral_constant<int, 128>(),
             integral_constant<int, 1>());
    }
    if constexpr (E == QuantType::q4_0 || E == QuantType::q8_0)
        tile(integral_constant<int, 4>(), integral_constant<int, 1>(), integral_constant<int, 128>(),
             integral_constant<int, 2>());
}

}  // namespace foresay::kernels::cuda
