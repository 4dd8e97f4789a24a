// core/weights/formats/stored_matrix.h: a matrix that a folder of safetensors stores as several tensors: codes, scales,
// zeros, an order of the inputs.
//
// Layout:   rows() x cols(), as the kernels have it: a row is one output, the columns are its inputs.
// Precision: values() gives what the format means, rounded to float32 at most where a factor of float32 enters; pack()
//           changes no number of values().
// Life:     tensors are those of a TensorTable, which must outlive the matrix.
// Threads:  immutable after its reader made it; any thread may read. pack() uses all cores.
// Cost:     making one reads headers, orders of inputs and scales; packed() reads scales and zeros, once.
// Errors:   readers throw Error for tensors that contradict each other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/weights/tensor_table.h"
#include "kernels/quant/narrow_codes.h"
#include "kernels/quant/packing.h"
#include "kernels/quant_type.h"

namespace foresay::core {

// Writes rows first, first + step, ... first + (count - 1) step of a matrix. Rows may be up to as many as the file
// pads.
struct RowRange {
    std::int64_t first = 0;
    std::int64_t step = 1;
    std::int64_t count = 0;
};

class StoredMatrix {
public:
    virtual ~StoredMatrix() = default;

    std::int64_t rows() const { return rows_; }
    std::int64_t cols() const { return cols_; }
    // Whether the file may have filled up the rows to a multiple of 32.
    bool padded() const { return padded_; }
    // "GPTQ, 4 bits, groups of 128".
    const std::string& encoding() const { return encoding_; }
    // All tensors that it is made of. Experts may share them; stored_bytes() is its own share.
    std::span<const TensorInfo* const> parts() const { return parts_; }
    std::int64_t stored_bytes() const;

    // The smallest type of the kernels that holds every number unchanged, and if it is QuantType::packed how its rows
    // lie; else null.
    kernels::QuantType packed() const { return chosen().type; }
    const kernels::Packing* packing() const;
    std::int64_t packed_row_bytes() const;
    // The numbers that the codes of packed() may have, if it has blocks of codes.
    const kernels::CodeRange& code_range() const { return chosen().codes; }
    // `out` holds range.count rows of packed().
    void pack(RowRange range, std::byte* out) const;
    // The numbers of one row; `out` holds cols() values. The exact path, which packed rows are tested against.
    void values(std::int64_t row, std::span<float> out) const;

protected:
    struct Choice {
        kernels::QuantType type = kernels::QuantType::f32;
        kernels::Packing packing;  // of QuantType::packed
        kernels::CodeRange codes;
    };
    // What packed() and packing() return.
    virtual Choice choose() const { return {}; }
    // `count` neighbouring rows, one after the other, in float32.
    virtual void read(std::int64_t first, std::int64_t count, float* out) const = 0;
    // The same in packed(), which is not float32.
    virtual void read_packed(std::int64_t first, std::int64_t count, std::byte* out) const;

    std::int64_t rows_ = 0, cols_ = 0;
    bool padded_ = false;
    std::string encoding_;
    std::vector<const TensorInfo*> parts_;
    // Neighbouring rows that are packed together: formats that store columns have this many in a line of the cache.
    std::int64_t tile_rows_ = 16;
    std::int64_t sharing_ = 1;  // matrices that lie in the same tensors: experts

private:
    const Choice& chosen() const;

    mutable std::once_flag once_;
    mutable Choice chosen_;
};

}  // namespace foresay::core
