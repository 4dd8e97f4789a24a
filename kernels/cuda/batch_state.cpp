#include "kernels/cuda/batch_state.h"

#include <algorithm>
#include <span>

namespace foresay::kernels::cuda {

void write_batch(const Batch& batch, std::int32_t rows_per_tile, std::span<std::int32_t> sequence_at,
                 BatchLayout layout, std::byte* to) {
    const auto size = [](std::int32_t n) { return static_cast<std::size_t>(n); };
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
        state = {row.token.value, row.position, row.cell < 0 ? row.position : row.cell, at, 0, used};
        if (batch.tree) {
            for (std::int32_t r = t; r >= 0; r = batch.rows[size(r)].parent) {
                lists[used++] = rows[r].cell;
                ++state.branch;
            }
        }
        const bool joins = t > 0 && !batch.tree && tiles[tile].rows < rows_per_tile &&
                           row.sequence == batch.rows[size(t) - 1].sequence;
        if (joins) {
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
