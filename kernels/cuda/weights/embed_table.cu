// The embedding table, in the layout of its file: rows are looked up one by one, so nothing is gained by packing.

#include "kernels/cuda/weights/embed_table.h"

#include <vector>

namespace foresay::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr std::int64_t kPattern = 64;  // rows that the host quantises and the device repeats

// out[i] = pattern[i % period], byte by byte: it runs once, when a synthetic model is loaded.
__global__ void repeat_kernel(const std::byte* pattern, std::int64_t period, std::byte* out, std::int64_t bytes) {
    const std::int64_t stride = static_cast<std::int64_t>(gridDim.x) * kThreads;
    for (std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < bytes; i += stride) {
        out[i] = pattern[i % period];
    }
}

}  // namespace

DeviceBuffer<std::byte> embed_table(const TensorView& table) {
    const auto bytes = static_cast<std::size_t>(table.rows * row_bytes(kept_type(table), table.cols));
    if (table.data != nullptr) {
        std::vector<std::byte> unpacked;
        return to_device(std::span(kept_rows(table, 0, table.rows, unpacked), bytes));
    }
    // A synthetic model. A few dozen random rows over and over: only the cost of a look-up matters, and quantising a
    // whole table on the host would be slow.
    const std::int64_t rows = table.rows < kPattern ? table.rows : kPattern;
    const auto row = static_cast<std::size_t>(row_bytes(table.quant_type, table.cols));
    std::vector<std::byte> pattern(row * static_cast<std::size_t>(rows));
    std::vector<float> values(static_cast<std::size_t>(table.cols));
    std::uint32_t state = 12345;
    for (std::int64_t r = 0; r < rows; ++r) {
        for (float& value : values) {
            state = state * 1664525u + 1013904223u;
            value = static_cast<float>(state >> 8) * (2.0f / 16777216.0f) - 1.0f;
        }
        quantize_row(table.quant_type, values, std::span(pattern).subspan(static_cast<std::size_t>(r) * row, row));
    }
    const DeviceBuffer<std::byte> from = to_device(std::span<const std::byte>(pattern));
    DeviceBuffer<std::byte> out(bytes);
    repeat_kernel<<<1024, kThreads>>>(from.data(), static_cast<std::int64_t>(from.size()), out.data(),
                                      static_cast<std::int64_t>(bytes));
    launched("random embeddings");
    cuda_check(cudaDeviceSynchronize(), "the device failed");  // `from` is freed when this returns
    return out;
}

}  // namespace foresay::kernels::cuda
