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
inline constexpr int kMixedFew = 16;    // of the smallest tile, which packed rows have
inline constexpr int kMaxMixedStages = 16;
inline constexpr int kMixedFlagAt = 16 * kMaxMixedStages;  // after the barriers: whether the CTA came last
inline constexpr int kMixedRingAt = kMixedFlagAt + 128;

struct MixedPlan {
    std::int32_t panels = 0, slices = 0, columns = 0;  // of a CTA; columns: rows of the batch
    std::int32_t token_tiles = 0, row_tiles = 0, units = 0;
    std::int32_t stages = 0, shared_bytes = 0;
};

// Rows of the batch that a warpgroup finishes where `slices` of them have a slice each: an equal share, but eight at
// least. Then the later ones finish none.
constexpr int own_columns(int columns, int slices) { return columns / slices < 8 ? 8 : columns / slices; }

struct MixedTileShape {
    std::uint8_t panels = 0, slices = 0, columns = 0, unused = 0;  // 4 bytes, which are read at once
    bool operator==(const MixedTileShape&) const = default;
};
// Four warpgroups for 64 columns, whose products come one at a time because registers are short.
constexpr bool has_four_groups_of_64(const MixedTileShape& tile) {
    return tile.columns == 64 && tile.panels * tile.slices == 8;
}

// Calls visit(panels, slices, columns), constants, for each tile that exists for a type: panels / 2 * slices warpgroups
// for `columns` rows of the batch. Tiles of few panels divide a small matrix among more multiprocessors, and several
// slices at once shorten the way through K. Other types leave 16 rows to the decode kernel.
template <QuantType E, class Visit>
void visit_mixed_tiles(const Visit& visit) {
    using std::integral_constant;
    const auto tile = [&]<int... kOf>(std::integer_sequence<int, kOf...>) { visit(integral_constant<int, kOf>()...); };
    if constexpr (E == QuantType::packed) {
        tile(std::integer_sequence<int, 8, 1, 16>());
        tile(std::integer_sequence<int, 4, 2, 16>());
        tile(std::integer_sequence<int, 2, 4, 16>());
    }
    tile(std::integer_sequence<int, 8, 1, 32>());
    tile(std::integer_sequence<int, 4, 2, 32>());
    tile(std::integer_sequence<int, 2, 4, 32>());
    tile(std::integer_sequence<int, 4, 1, 64>());
    tile(std::integer_sequence<int, 2, 2, 64>());
    if constexpr (E == QuantType::q4_0 || E == QuantType::q8_0) {
        tile(std::integer_sequence<int, 4, 1, 128>());
        tile(std::integer_sequence<int, 4, 2, 64>());
        tile(std::integer_sequence<int, 2, 4, 64>());
    }
    // The sums of a block of Q6_K, and the two products of packed rows, leave no registers for it.
    if constexpr (E != QuantType::q6_k && E != QuantType::packed) {
        tile(std::integer_sequence<int, 8, 1, 64>());
    }
}

}  // namespace foresay::kernels::cuda
