// kernels/quant_type.h: how a file stores the numbers of a weight tensor, and a view of such a tensor.
//
// Layout:   a tensor is `rows` x `cols`, row-major; each row is a whole number of blocks of its quantisation type. For
//           a linear layer a row is one output feature and the columns are its inputs.
// Threads:  any; everything here is immutable plain data.
// Source:   block layouts are GGUF's (see kernels/quant/, one header per quantisation type).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace foresay::kernels {

enum class QuantType : std::uint8_t {
    f32,
    f16,
    bf16,
    q4_0,
    q8_0,
    q4_k,
    q5_k,
    q6_k,
    mxfp4,
    packed,  // how its rows lie is data: kernels/quant/packing.h
};
inline constexpr int kQuantTypes = 9;  // those with a layout of their own: all but packed

struct QuantTypeInfo {
    std::string_view name;        // lower case, as in `--quant`
    std::int32_t block_elements;  // values per block
    std::int32_t block_bytes;     // bytes per block; 0: a packing says how many a row has
};

// The constants of one quantisation type.
constexpr QuantTypeInfo info(QuantType quant_type) {
    constexpr QuantTypeInfo table[kQuantTypes + 1] = {
        {"f32", 1, 4},      {"f16", 1, 2},      {"bf16", 1, 2},     {"q4_0", 32, 18},  {"q8_0", 32, 34},
        {"q4_k", 256, 144}, {"q5_k", 256, 176}, {"q6_k", 256, 210}, {"mxfp4", 32, 17}, {"packed", 32, 0},
    };
    return table[static_cast<int>(quant_type)];
}

// Bytes of one row of `cols` values; `cols` must be a multiple of the block, and the type not packed.
constexpr std::int64_t row_bytes(QuantType quant_type, std::int64_t cols) {
    return cols / info(quant_type).block_elements * info(quant_type).block_bytes;
}

struct Packing;
// The same of rows that a packing describes.
std::int64_t row_bytes(const Packing& packing, std::int64_t cols);

// A tensor as it lies in a mapped file or in memory. Never owns.
struct TensorView {
    QuantType quant_type = QuantType::f32;
    std::int64_t rows = 0;             // output features; 1 for a vector
    std::int64_t cols = 0;             // input features, contiguous
    const std::byte* data = nullptr;   // rows * row_bytes() bytes, any alignment; null with a shape: the backend fills
                                       // in random numbers (Ops::makes_random_weights)
    const Packing* packing = nullptr;  // of QuantType::packed; else null

    bool empty() const { return rows == 0; }
    std::int64_t row_bytes() const {
        return packing != nullptr ? kernels::row_bytes(*packing, cols) : kernels::row_bytes(quant_type, cols);
    }
    std::int64_t bytes() const { return rows * row_bytes(); }
    std::int64_t elements() const { return rows * cols; }
};

// Dequantises row `row` of `tensor` to float32; `out` holds tensor.cols values. This is the exact path: embeddings
// use it, and tests compare every packed kernel with it.
void dequantize_row(const TensorView& tensor, std::int64_t row, std::span<float> out);

// Quantises `values` to `quant_type` (round to nearest, scales chosen without a search). For `--shape`, tests and
// benchmarks. `out` holds row_bytes(quant_type, values.size()) bytes.
void quantize_row(QuantType quant_type, std::span<const float> values, std::span<std::byte> out);

}  // namespace foresay::kernels
