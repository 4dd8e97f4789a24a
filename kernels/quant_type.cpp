#include "kernels/quant_type.h"

#include "base/error.h"
#include "kernels/quant/quantize.h"
#include "kernels/quant/visit.h"

namespace foresay::kernels {
namespace {

template <class Q>
constexpr bool matches_table() {
    return info(Q::kQuantType).block_elements == Q::kElements &&
           info(Q::kQuantType).block_bytes == sizeof(typename Q::Block);
}
static_assert(matches_table<F32>() && matches_table<F16>() && matches_table<BF16>() && matches_table<Q4_0>());
static_assert(matches_table<Q8_0>() && matches_table<Q4_K>() && matches_table<Q5_K>() && matches_table<Q6_K>());
static_assert(matches_table<MXFP4>());

}  // namespace

void dequantize_row(const TensorView& tensor, std::int64_t row, std::span<float> out) {
    check(tensor.data != nullptr && row >= 0 && row < tensor.rows, "dequantize_row outside the tensor");
    check(static_cast<std::int64_t>(out.size()) == tensor.cols, "dequantize_row into a span of another size");
    check(tensor.cols % info(tensor.quant_type).block_elements == 0,
          "dequantize_row of a row that is not a whole number of blocks");
    const std::byte* data = tensor.data + row * row_bytes(tensor.quant_type, tensor.cols);
    visit_quant_type(tensor.quant_type, [&](auto q) {
        using Q = decltype(q);
        const auto* blocks = reinterpret_cast<const typename Q::Block*>(data);
        const std::int64_t count = tensor.cols / Q::kElements;
        float* values = out.data();
        for (std::int64_t i = 0; i < count; ++i) Q::dequantize_block(blocks[i], values + i * Q::kElements);
    });
}

void quantize_row(QuantType quant_type, std::span<const float> values, std::span<std::byte> out) {
    const auto cols = static_cast<std::int64_t>(values.size());
    check(cols % info(quant_type).block_elements == 0, "quantize_row of a row that is not a whole number of blocks");
    check(static_cast<std::int64_t>(out.size()) == row_bytes(quant_type, cols),
          "quantize_row into a span of another size");
    visit_quant_type(quant_type, [&](auto q) {
        using Q = decltype(q);
        auto* blocks = reinterpret_cast<typename Q::Block*>(out.data());
        const std::int64_t count = cols / Q::kElements;
        for (std::int64_t i = 0; i < count; ++i) quantize_block(values.data() + i * Q::kElements, blocks[i]);
    });
}

}  // namespace foresay::kernels
