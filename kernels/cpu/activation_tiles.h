// kernels/cpu/activation_tiles.h: the activations that a linear op reads: all rows of a batch, quantised into tiles of
// up to 16 rows (ActivationTile in kernels/cpu/isa_kernels.h).
//
// Threads:  one thread calls set_rows(). Many threads may then fill rows at once: each row has its own places.
// Cost:     only reserve() allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/isa_kernels.h"

namespace foresay::kernels::cpu {

class ActivationTiles {
public:
    // Room for `max_rows` rows of up to `max_inputs` inputs, in up to `max_groups` groups.
    void reserve(int max_rows, std::int64_t max_inputs, int max_groups = 1);
    std::int64_t bytes() const { return memory_.bytes; }

    // Cuts `rows` rows into tiles of widths for which kernels exist.
    void set_rows(int rows, const IsaKernels& isa) { set_groups({&rows, 1}, isa); }
    // The same for rows in groups of these sizes. No tile has rows of two groups.
    void set_groups(std::span<const int> sizes, const IsaKernels& isa);

    int tiles() const { return static_cast<int>(tiles_.size()); }
    const ActivationTile& tile(int i) const { return tiles_[static_cast<std::size_t>(i)]; }
    int first_row(int i) const { return first_row_[static_cast<std::size_t>(i)]; }
    // The tile that holds a row.
    int tile_of(int row) const { return tile_of_row_[static_cast<std::size_t>(row)]; }

    // Fills in row `row` from x[inputs], as codes, float32, or both. `order`: which input stands at each place of the
    // codes; empty: each at its own.
    void fill(const IsaKernels& isa, int row, const float* x, int inputs, bool codes, bool floats,
              std::span<const std::int32_t> order = {});
    // Fills in the codes of x[begin, end) only. `begin` is a multiple of kScaleInputs; so is `end`, unless it is
    // `inputs`.
    void fill_codes(const IsaKernels& isa, int row, const float* x, int inputs, int begin, int end);

private:
    // The codes of `count` inputs from `begin` on, which `x` points to.
    void fill_part(const IsaKernels& isa, int row, const float* x, int inputs, int begin, int count);

    Block memory_;
    std::int64_t max_inputs_ = 0;
    std::int64_t max_places_ = 0;  // rows that fit, padding included
    std::vector<ActivationTile> tiles_;
    std::vector<int> first_row_;
    std::vector<int> tile_of_row_;
};

}  // namespace foresay::kernels::cpu
