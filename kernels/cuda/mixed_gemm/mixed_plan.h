// kernels/cuda/mixed_gemm/mixed_plan.h: how a launch of mixed_gemm is divided into units, and the ring's depth.
//
// Only speed depends on the plan, never the bits of a row.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "kernels/quant_type.h"

namespace foresay::kernels::cuda {

inline constexpr int kMixedTile = 128;  // rows of the batch of one CTA, at most
inline constexpr int kMaxMixedStages = 16;
inline constexpr int kMixedFlagAt = 16 * kMaxMixedStages;  // after the barriers: whether the CTA came last
inline constexpr int kMixedRingAt = kMixedFlagAt + 128;

struct MixedPlan {
    // Of a CTA; warpgroups with other rows of the batch, and with other slices of K at once; rows of each.
    std::int32_t panels = 0, sets = 0, slices = 0, columns = 0;
    std::int32_t cluster = 1;  // CTAs that share the rows of the batch
    std::int32_t token_tiles = 0, row_tiles = 0, units = 0;
    std::int32_t stages = 0, shared_bytes = 0;
    std::int32_t experiment = 0;  // EXPERIMENT 1: no products; 2: no images; 4: no copies
};

// Calls visit(panels, sets, slices, columns, cluster), constants, for each tile that exists for a type: panels / 2 *
// sets * slices warpgroups for sets * columns rows of the batch. Tiles of few panels divide a small matrix among more
// multiprocessors.
template <QuantType E, class Visit>
void visit_mixed_tiles(const Visit& visit) {
    using std::integral_constant;
    const auto tile = [&]<int... kOf>(std::integer_sequence<int, kOf...>) { visit(integral_constant<int, kOf>()...); };
    constexpr bool kExperiment = E == QuantType::q4_0;
    tile(std::integer_sequence<int, 8, 1, 1, 32, 1>());
    tile(std::integer_sequence<int, 4, 1, 2, 32, 1>());
    tile(std::integer_sequence<int, 2, 1, 4, 32, 1>());
    tile(std::integer_sequence<int, 4, 1, 1, 64, 2>());
    tile(std::integer_sequence<int, 2, 1, 2, 64, 2>());
    tile(std::integer_sequence<int, 2, 2, 1, 64, 2>());
    if constexpr (kExperiment) {
        tile(std::integer_sequence<int, 8, 1, 1, 32, 2>());
        tile(std::integer_sequence<int, 2, 1, 4, 32, 2>());
        tile(std::integer_sequence<int, 4, 1, 1, 64, 1>());
        tile(std::integer_sequence<int, 2, 1, 2, 64, 1>());
        tile(std::integer_sequence<int, 4, 1, 1, 128, 1>());
    }
    if constexpr (E == QuantType::q4_0 || E == QuantType::q8_0) tile(std::integer_sequence<int, 4, 1, 1, 128, 2>());
}

}  // namespace foresay::kernels::cuda
