// kernels/cpu/input_tiles.h: the inputs of a linear stage for all rows of a batch, as tiles of up to 16 rows.
//
// Threads:  set_rows() by one thread; rows may then be filled by many at once, since each writes its own places.
// Cost:     memory is taken once, by reserve().
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/isa_kernels.h"

namespace foresay::kernels::cpu {

class InputTiles {
public:
    // Room for `max_rows` rows of up to `max_inputs` inputs.
    void reserve(int max_rows, std::int64_t max_inputs);
    std::int64_t bytes() const { return memory_.bytes; }

    // Cuts `rows` rows into tiles that the kernels have widths for.
    void set_rows(int rows, const IsaKernels& isa);

    int tiles() const { return static_cast<int>(tiles_.size()); }
    const InputTile& tile(int i) const { return tiles_[static_cast<std::size_t>(i)]; }
    int first_row(int i) const { return first_row_[static_cast<std::size_t>(i)]; }

    // Fills row `row` from x[inputs].
    void fill(const IsaKernels& isa, int row, const float* x, int inputs, bool codes, bool floats);
    // The codes of x[begin .. end) only. `begin` is a multiple of kScaleInputs, and so is `end`, or it is `inputs`.
    void fill_codes(const IsaKernels& isa, int row, const float* x, int inputs, int begin, int end);

private:
    Block memory_;
    std::int64_t max_inputs_ = 0;
    std::int64_t slots_ = 0;  // rows that there is room for, padding included
    std::vector<InputTile> tiles_;
    std::vector<int> first_row_;
    std::vector<int> tile_of_row_;
};

}  // namespace foresay::kernels::cpu
