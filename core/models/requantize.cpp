#include "core/models/requantize.h"

#include "core/models/parallel_rows.h"

namespace foresay::core {

bool shrinks(const kernels::TensorView& view, kernels::QuantType quant_type) {
    return view.cols % kernels::info(quant_type).block_elements == 0 &&
           kernels::row_bytes(quant_type, view.cols) < view.row_bytes();
}

kernels::TensorView requantize(const kernels::TensorView& view, kernels::QuantType quant_type,
                               std::vector<std::byte>& bytes) {
    const auto row_bytes = static_cast<std::size_t>(kernels::row_bytes(quant_type, view.cols));
    bytes.resize(static_cast<std::size_t>(view.rows) * row_bytes);
    parallel_rows(view.rows, [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> row(static_cast<std::size_t>(view.cols));
        for (std::int64_t r = begin; r < end; ++r) {
            kernels::dequantize_row(view, r, row);
            kernels::quantize_row(quant_type, row, {bytes.data() + static_cast<std::size_t>(r) * row_bytes, row_bytes});
        }
    });
    return {quant_type, view.rows, view.cols, bytes.data()};
}

}  // namespace foresay::core
