// kernels/cuda/attention/tile.cuh: what attention kernels share: which rows a tile holds.
//
// Layout:   operand row r of a tile is query head r % per_tile of batch row r / per_tile, both counted from the tile's
//           first. With 4 query heads per KV head a tile holds 4 batch rows; with 16 or more it holds one.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/instructions.cuh"

namespace foresay::kernels::cuda {
namespace attention {

// Scores are kept times log2(e), so that exp becomes ex2, one instruction.
inline constexpr float kLog2e = 1.44269504f;

// The score of a position that a row does not attend to: its weight is an exact 0.
__device__ inline float minus_infinity() { return __int_as_float(0xff800000); }

// Two numbers as a register of an operand: `low` has the lower index.
__device__ inline std::uint32_t pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
}

__device__ inline std::uint32_t pack(__half low, __half high) {
    const __half2 pair = __halves2half2(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&pair);
}

// What a sink adds to a sum of weights whose peak is `peak`, which is times log2(e). Beyond the largest number it is
// infinite, and then the outputs are 0, as they should be.
__device__ inline float sink_weight(float sink, float peak) { return power_of_two(fmaf(sink, kLog2e, -peak)); }

// Which (row, query head) the 16 operand rows of a tile are: per_tile heads of the first batch row, then of the second,
// and so on.
struct Tile {
    TileState state;
    std::int32_t head_first;  // query head of the tile's row 0
    std::int32_t heads;       // query heads in it
    std::int32_t per_tile;    // operand rows of one batch row
    std::int32_t kv_head;
    std::uint32_t per_tile_inverse;

    Tile() = default;
    __device__ Tile(const AttendCall& c, std::int32_t index, std::int32_t head_tile) : state(c.batch.tiles[index]) {
        per_tile = c.per_tile;
        per_tile_inverse = c.per_tile_inverse;
        kv_head = quotient_by(head_tile, c.tiles_per_head_inverse);
        const std::int32_t first = (head_tile - kv_head * c.tiles_per_head) * per_tile;
        head_first = kv_head * c.group + first;
        heads = min(per_tile, c.group - first);
    }
    // The least position that any row attends to. The rows of a tile come in increasing position.
    __device__ std::int32_t least(const AttendCall& c) const {
        return c.window > 0 ? max(0, state.lowest - c.window + 1) : 0;
    }
    // The batch row of an operand row, counted from the tile's first.
    __device__ std::int32_t batch_row(std::int32_t r) const { return quotient_by(r, per_tile_inverse); }
    __device__ bool valid(std::int32_t r) const {
        return batch_row(r) < state.rows && r - batch_row(r) * per_tile < heads;
    }
    __device__ std::int32_t used() const { return state.rows * per_tile; }  // operand rows from here on are empty
    __device__ std::int32_t row(std::int32_t r) const { return state.first + batch_row(r); }
    __device__ std::int32_t head(std::int32_t r) const { return head_first + r - batch_row(r) * per_tile; }
    // Where operand row r, which must be valid, has its part of q and of the output.
    __device__ std::int64_t values(const AttendCall& c, std::int32_t r) const {
        return (static_cast<std::int64_t>(row(r)) * c.heads + head(r)) * c.head_dim;
    }
};

}  // namespace attention

// Calls body(width, special) with constants: the padded width of the heads, and whether rows may be those of a tree or
// scores capped. Each pair is a kernel of its own.
template <class Body>
void with_attention_variant(const AttendCall& call, const Body& body) {
    const auto with_width = [&](auto special) {
        if (call.layout.width == 32) {
            body(std::integral_constant<int, 32>(), special);
        } else if (call.layout.width == 64) {
            body(std::integral_constant<int, 64>(), special);
        } else if (call.layout.width == 128) {
            body(std::integral_constant<int, 128>(), special);
        } else {
            body(std::integral_constant<int, 256>(), special);
        }
    };
    if (call.tree || call.soft_cap > 0) {
        with_width(std::true_type());
    } else {
        with_width(std::false_type());
    }
}

}  // namespace foresay::kernels::cuda
