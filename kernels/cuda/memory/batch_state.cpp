// Measures a batch and writes it in the layout of batch_state.h.
//
// Tiles:    neighbouring rows of one sequence share a tile, as many as its 16 operand rows have room for; rows of a
//           tree are alone, because each has a path of its own. measure_batch() and write_batch() cut the same tiles:
//           both ask joins().
// Lists:    the pages of each sequence, once, where its first row comes; after them, in a tree, the cells of each row's
//           path. So without trees the lists are page numbers only, in one piece (CudaWorkspace::listed_pages).

#include "kernels/cuda/memory/batch_state.h"

#include <algorithm>
#include <span>

namespace foresay::kernels::cuda {
namespace {

std::size_t size(std::int32_t n) { return static_cast<std::size_t>(n); }

// Whether row t belongs to the tile of the row before it, which has `in_tile` rows.
bool joins(const Batch& batch, std::int32_t t, std::int32_t in_tile, std::int32_t rows_per_tile) {
    return t > 0 && !batch.tree && in_tile < rows_per_tile &&
           batch.rows[size(t)].sequence == batch.rows[size(t) - 1].sequence;
}

}  // namespace

// `sequence_at` only marks here which sequences have been counted: 0 instead of -1.
BatchMeasure measure_batch(const Batch& batch, std::int32_t rows_per_tile, std::span<std::int32_t> sequence_at) {
    const auto rows = static_cast<std::int32_t>(batch.rows.size());
    BatchMeasure measure{{rows, 0, static_cast<std::int32_t>(batch.logit_rows.size())}};
    std::fill(sequence_at.begin(), sequence_at.end(), -1);
    for (std::int32_t t = 0, in_tile = 0; t < rows; ++t) {
        const Row& row = batch.rows[size(t)];
        measure.furthest = std::max(measure.furthest, row.position);
        const bool joined = joins(batch, t, in_tile, rows_per_tile);
        in_tile = joined ? in_tile + 1 : 1;
        measure.layout.tiles += joined ? 0 : 1;
        std::int32_t& at = sequence_at[size(row.sequence)];
        if (at < 0) {
            at = 0;
            measure.listed += static_cast<std::int64_t>(batch.sequences[size(row.sequence)].pages.size());
        }
        if (batch.tree) measure.listed += t + 1;  // no path is longer
    }
    return measure;
}

void write_batch(const Batch& batch, std::int32_t rows_per_tile, std::span<std::int32_t> sequence_at,
                 BatchLayout layout, std::byte* to) {
    auto* rows = reinterpret_cast<RowState*>(to);
    auto* tiles = reinterpret_cast<TileState*>(to + layout.tiles_at());
    auto* logit_rows = reinterpret_cast<std::int32_t*>(to + layout.logit_rows_at());
    auto* lists = reinterpret_cast<std::int32_t*>(to + layout.lists_at());
    std::fill(sequence_at.begin(), sequence_at.end(), -1);
    std::int32_t used = 0, tile = -1;
    for (std::int32_t t = 0; t < layout.rows; ++t) {
        const Row& row = batch.rows[size(t)];
        const std::span<const std::int32_t> pages = batch.sequences[size(row.sequence)].pages;
        std::int32_t& at = sequence_at[size(row.sequence)];
        if (at < 0) {
            at = used;
            std::copy(pages.begin(), pages.end(), lists + used);
            used += static_cast<std::int32_t>(pages.size());
        }
        RowState& state = rows[t];
        // A row without a cell of its own writes K and V to the cell of its position.
        state = {row.token.value, row.position, row.cell < 0 ? row.position : row.cell, at, 0, used};
        if (batch.tree) {
            // The cells of the row's path, its own first: ancestors come before it in the batch.
            for (std::int32_t r = t; r >= 0; r = batch.rows[size(r)].parent) {
                lists[used++] = rows[r].cell;
                ++state.branch;
            }
        }
        // Rows of a sequence come in increasing position, so the last row of a tile has its highest.
        if (joins(batch, t, t > 0 ? tiles[tile].rows : 0, rows_per_tile)) {
            ++tiles[tile].rows;
            tiles[tile].highest = row.position;
        } else {
            tiles[++tile] = {
                t, 1, at, batch.sequences[size(row.sequence)].length, row.position, row.position, state.branch, 0};
        }
    }
    std::copy(batch.logit_rows.begin(), batch.logit_rows.end(), logit_rows);
}

}  // namespace foresay::kernels::cuda
