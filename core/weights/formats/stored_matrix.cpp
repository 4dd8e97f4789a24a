#include "core/weights/formats/stored_matrix.h"

#include <algorithm>

#include "base/error.h"
#include "core/models/parallel_rows.h"

namespace foresay::core {

std::int64_t StoredMatrix::stored_bytes() const {
    std::int64_t bytes = 0;
    for (const TensorInfo* part : parts_) bytes += part->bytes;
    return bytes / sharing_;
}

const StoredMatrix::Choice& StoredMatrix::chosen() const {
    std::call_once(once_, [this] { chosen_ = choose(); });
    return chosen_;
}

const kernels::Packing* StoredMatrix::packing() const {
    const Choice& choice = chosen();
    return choice.type == kernels::QuantType::packed ? &choice.packing : nullptr;
}

std::int64_t StoredMatrix::packed_row_bytes() const {
    return kernels::TensorView{packed(), rows_, cols_, nullptr, packing()}.row_bytes();
}

void StoredMatrix::pack(RowRange range, std::byte* out) const {
    const kernels::QuantType type = packed();
    const std::int64_t row_bytes = packed_row_bytes();
    const std::int64_t tile = range.step == 1 ? tile_rows_ : 1;
    parallel_rows((range.count + tile - 1) / tile, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t t = begin; t < end; ++t) {
            const std::int64_t row = t * tile, count = std::min(tile, range.count - row);
            std::byte* const to = out + row * row_bytes;
            const std::int64_t first = range.first + row * range.step;
            if (type == kernels::QuantType::f32) {
                read(first, count, reinterpret_cast<float*>(to));
            } else {
                read_packed(first, count, to);
            }
        }
    });
}

void StoredMatrix::values(std::int64_t row, std::span<float> out) const {
    check(row >= 0 && row < rows_ && static_cast<std::int64_t>(out.size()) == cols_, "a row outside a matrix");
    read(row, 1, out.data());
}

void StoredMatrix::read_packed(std::int64_t, std::int64_t, std::byte*) const {
    bug("a matrix of a folder that is packed into a type that its reader does not write");
}

}  // namespace foresay::core
