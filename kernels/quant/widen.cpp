#include "kernels/quant/widen.h"

#include <algorithm>

#include "base/error.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/mxfp4.h"
#include "kernels/quant/q8_0.h"

namespace foresay::kernels {
namespace {

// 2^(e - 128) is a float16 for these exponents.
constexpr int kLeastExponent = 128 - 24, kMostExponent = 128 + 15;

bool is_zero(const MXFP4::Block& block) {
    return std::ranges::all_of(block.codes, [](std::uint8_t byte) { return (byte & 0x77u) == 0; });
}

std::span<const MXFP4::Block> blocks_of(const TensorView& view) {
    return {reinterpret_cast<const MXFP4::Block*>(view.data),
            static_cast<std::size_t>(view.elements() / MXFP4::kElements)};
}

void convert(const MXFP4::Block& from, Q8_0::Block& to) {
    const float scale = is_zero(from) ? 0.0f : MXFP4::half_scale(from.exponent);
    to.d = StoredF16::from_bits(f32_to_f16(scale));
    for (int i = 0; i < MXFP4::kElements; ++i)
        to.codes[i] = static_cast<std::int8_t>(MXFP4::twice(MXFP4::code(from, i)));
}

}  // namespace

QuantType widened_type(const TensorView& view) {
    if (view.quant_type != QuantType::mxfp4) return view.quant_type;
    if (view.data == nullptr) return QuantType::q8_0;
    const bool fits = std::ranges::all_of(blocks_of(view), [](const MXFP4::Block& block) {
        return (block.exponent >= kLeastExponent && block.exponent <= kMostExponent) || is_zero(block);
    });
    return fits ? QuantType::q8_0 : QuantType::bf16;
}

TensorView widen(const TensorView& view, QuantType type, std::vector<std::byte>& bytes) {
    check(view.quant_type == QuantType::mxfp4 && (type == QuantType::q8_0 || type == QuantType::bf16),
          "MXFP4 becomes Q8_0 or BF16");
    TensorView out{type, view.rows, view.cols, nullptr};
    if (view.data == nullptr) return out;
    bytes.resize(static_cast<std::size_t>(out.bytes()));
    out.data = bytes.data();
    const std::span<const MXFP4::Block> blocks = blocks_of(view);
    if (type == QuantType::q8_0) {
        auto* const to = reinterpret_cast<Q8_0::Block*>(bytes.data());
        for (std::size_t i = 0; i < blocks.size(); ++i) convert(blocks[i], to[i]);
        return out;
    }
    auto* to = reinterpret_cast<BF16::Block*>(bytes.data());
    for (const MXFP4::Block& block : blocks) {
        for (int i = 0; i < MXFP4::kElements; ++i, ++to) {
            const std::uint16_t bits = f32_to_bf16(MXFP4::dequantize(block, i));  // exact
            *to = {static_cast<std::uint8_t>(bits & 0xffu), static_cast<std::uint8_t>(bits >> 8)};
        }
    }
    return out;
}

}  // namespace foresay::kernels
