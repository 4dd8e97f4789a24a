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
    std::int32_t panels = 0, nt = 0;  // of a CTA; eights of rows of a warp
    std::int32_t token_tiles = 0, row_tiles = 0, units = 0;
    std::int32_t stages = 0, shared_bytes = 0;
    bool warpgroups = false;  // take the kernel of sm90a/
};

// Whether sm90a/ has a kernel of the type.
constexpr bool has_wgmma(QuantType quant_type) {
    return quant_type == QuantType::q4_0 || quant_type == QuantType::q8_0;
}

// Calls visit(panels, nt), constants, for each tile that exists for a type: 8 / panels warps share the rows, so a tile
// has 8 * nt * 8 / panels of them. Q6_K keeps a second set of sums, so its warps have half as many rows.
template <QuantType E, class Visit>
void visit_mixed_tiles(const Visit& visit) {
    const auto tile = [&](auto panels, auto nt) { visit(panels, nt); };
    using std::integral_constant;
    if constexpr (E == QuantType::q6_k) {
        tile(integral_constant<int, 8>(), integral_constant<int, 4>());  // 32 rows
        tile(integral_constant<int, 2>(), integral_constant<int, 1>());
        tile(integral_constant<int, 4>(), integral_constant<int, 4>());  // 64
        tile(integral_constant<int, 2>(), integral_constant<int, 4>());  // 128
    } else {
        tile(integral_constant<int, 8>(), integral_constant<int, 4>());  // 32 rows
        tile(integral_constant<int, 4>(), integral_constant<int, 2>());
        tile(integral_constant<int, 2>(), integral_constant<int, 1>());
        tile(integral_constant<int, 8>(), integral_constant<int, 8>());  // 64
        tile(integral_constant<int, 4>(), integral_constant<int, 4>());
        tile(integral_constant<int, 2>(), integral_constant<int, 2>());
        tile(integral_constant<int, 4>(), integral_constant<int, 8>());  // 128
        tile(integral_constant<int, 2>(), integral_constant<int, 4>());
    }
}

}  // namespace foresay::kernels::cuda
