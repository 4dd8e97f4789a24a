#include "core/models/reencode.h"

#include "core/models/parallel_rows.h"

namespace foresay::core {

bool shrinks(const kernels::TensorView& view, kernels::Encoding encoding) {
    return view.cols % kernels::info(encoding).block_elements == 0 &&
           kernels::row_bytes(encoding, view.cols) < kernels::row_bytes(view.encoding, view.cols);
}

kernels::TensorView reencode(const kernels::TensorView& view, kernels::Encoding encoding,
                             std::vector<std::byte>& bytes) {
    const auto row_bytes = static_cast<std::size_t>(kernels::row_bytes(encoding, view.cols));
    bytes.resize(static_cast<std::size_t>(view.rows) * row_bytes);
    parallel_rows(view.rows, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> row(static_cast<std::size_t>(view.cols));
        for (std::int64_t r = begin; r < end; ++r) {
            kernels::decode_row(view, r, row);
            kernels::encode_row(encoding, row, {bytes.data() + static_cast<std::size_t>(r) * row_bytes, row_bytes});
        }
    });
    return {encoding, view.rows, view.cols, bytes.data()};
}

}  // namespace foresay::core
