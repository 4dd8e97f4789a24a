#include "kernels/quant_type.h"

#include "base/error.h"
#include "kernels/quant/packing.h"
#include "kernels/quant/quantize.h"
#include "kernels/quant/visit.h"

namespace foresay::kernels {
namespace {

template <class... Types>
constexpr bool matches_table(QuantTypeList<Types...>) {
    int place = 0;
    return sizeof...(Types) == kQuantTypes && ((static_cast<int>(Types::kQuantType) == place++ &&
                                                info(Types::kQuantType).block_elements == Types::kElements &&
                                                info(Types::kQuantType).block_bytes == sizeof(typename Types::Block)) &&
                                               ...);
}
static_assert(matches_table(AllQuantTypes{}));

}  // namespace

void dequantize_row(const TensorView& tensor, std::int64_t row, std::span<float> out) {
    check(tensor.data != nullptr && row >= 0 && row < tensor.rows, "dequantize_row outside the tensor");
    check(static_cast<std::int64_t>(out.size()) == tensor.cols, "dequantize_row into a span of another size");
    check(tensor.cols % info(tensor.quant_type).block_elements == 0,
          "dequantize_row of a row that is not a whole number of blocks");
    const std::byte* data = tensor.data + row * tensor.row_bytes();
    if (tensor.packing != nullptr) return dequantize_packed(*tensor.packing, data, out);
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
