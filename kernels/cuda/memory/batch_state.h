// kernels/cuda/memory/batch_state.h: a Batch as the device sees it: one piece of plain data at a fixed address, filled
// by one copy per forward, so that nothing about a captured graph ever changes.
//
// Layout:   RowState [T], TileState [tiles], logit rows [n], then lists of 32-bit numbers (page lists, tree cells).
//           Where each begins follows from T, tiles and n alone (BatchLayout), which are constants of a graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/host_device.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

struct RowState {
    std::int32_t token;  // id, or ~slot
    std::int32_t position;
    std::int32_t cell;       // that receives K and V
    std::int32_t pages;      // in the lists: the pages of the row's sequence
    std::int32_t branch;     // positions up to the row's own that lie in the cells of a tree path; 0 without trees
    std::int32_t ancestors;  // in the lists: the cells of positions position, position - 1, ... (`branch` of them)
};

// Consecutive rows of one sequence that attend together. A tree row is alone. What a kernel needs to know before it can
// read keys is here at one place.
struct alignas(16) TileState {
    std::int32_t first;
    std::int32_t rows;
    std::int32_t pages;      // as of its rows
    std::int32_t committed;  // positions below lie in cells that this forward does not write
    std::int32_t lowest;     // position of its first row
    std::int32_t highest;    // of its last
    std::int32_t branch;     // of its first row
    std::int32_t unused;
};

// Where the parts of a batch are.
struct BatchView {
    const RowState* rows;
    const TileState* tiles;
    const std::int32_t* logit_rows;
    const std::int32_t* lists;

    // The cell of a position that `row` attends to.
    FORESAY_HOST_DEVICE std::int32_t cell(const RowState& row, std::int32_t position) const {
        const std::int32_t back = row.position - position;
        return back < row.branch ? lists[row.ancestors + back] : position;
    }
};

struct BatchLayout {
    std::int32_t rows = 0, tiles = 0, logit_rows = 0;

    std::int64_t tiles_at() const {
        const std::int64_t end = static_cast<std::int64_t>(sizeof(RowState)) * rows;
        return (end + 15) / 16 * 16;
    }
    std::int64_t logit_rows_at() const { return tiles_at() + static_cast<std::int64_t>(sizeof(TileState)) * tiles; }
    std::int64_t lists_at() const {
        return logit_rows_at() + static_cast<std::int64_t>(sizeof(std::int32_t)) * logit_rows;
    }

    BatchView view(const std::byte* base) const {
        return {reinterpret_cast<const RowState*>(base), reinterpret_cast<const TileState*>(base + tiles_at()),
                reinterpret_cast<const std::int32_t*>(base + logit_rows_at()),
                reinterpret_cast<const std::int32_t*>(base + lists_at())};
    }
};

// The room that a batch takes, with tiles of at most `rows_per_tile` rows. `sequence_at`: scratch, an entry per
// sequence.
struct BatchMeasure {
    BatchLayout layout;
    std::int32_t furthest = 0;  // position
    std::int64_t listed = 0;    // numbers in the lists, at most
};
BatchMeasure measure_batch(const Batch& batch, std::int32_t rows_per_tile, std::span<std::int32_t> sequence_at);
// Writes a batch of that layout to `to`.
void write_batch(const Batch& batch, std::int32_t rows_per_tile, std::span<std::int32_t> sequence_at,
                 BatchLayout layout, std::byte* to);

}  // namespace foresay::kernels::cuda
