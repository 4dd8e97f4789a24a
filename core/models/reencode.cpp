#include "core/models/reencode.h"

#include <algorithm>
#include <thread>

namespace foresay::core {

bool shrinks(const kernels::TensorView& view, kernels::Encoding encoding) {
    return view.cols % kernels::info(encoding).block_elements == 0 &&
           kernels::row_bytes(encoding, view.cols) < kernels::row_bytes(view.encoding, view.cols);
}

kernels::TensorView reencode(const kernels::TensorView& view, kernels::Encoding encoding,
                             std::vector<std::byte>& bytes) {
    const auto row_bytes = static_cast<std::size_t>(kernels::row_bytes(encoding, view.cols));
    bytes.resize(static_cast<std::size_t>(view.rows) * row_bytes);
    const auto encode = [&](std::int64_t begin, std::int64_t end) {
        std::vector<float> row(static_cast<std::size_t>(view.cols));
        for (std::int64_t r = begin; r < end; ++r) {
            kernels::decode_row(view, r, row);
            kernels::encode_row(encoding, row, {bytes.data() + static_cast<std::size_t>(r) * row_bytes, row_bytes});
        }
    };
    const std::int64_t parts = std::clamp<std::int64_t>(std::thread::hardware_concurrency(), 1, 64);
    std::vector<std::jthread> threads;
    for (std::int64_t i = 1; i < parts; ++i) {
        threads.emplace_back(encode, view.rows * i / parts, view.rows * (i + 1) / parts);
    }
    encode(0, view.rows / parts);
    threads.clear();
    return {encoding, view.rows, view.cols, bytes.data()};
}

}  // namespace foresay::core
