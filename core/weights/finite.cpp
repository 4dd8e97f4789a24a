#include "core/weights/finite.h"

#include <algorithm>
#include <cstring>

#include "kernels/quant/packing.h"
#include "kernels/quant/visit.h"

namespace foresay::core {
namespace {

// The exponent bits, which are all set in NaN and infinities.
constexpr std::uint32_t kF32Exponent = 0x7f800000u;
constexpr std::uint16_t kF16Exponent = 0x7c00, kBf16Exponent = 0x7f80;

// Whether `count` numbers are finite: the first at `first`, one every `stride` bytes, with bits of type T.
template <class T>
bool all_finite(const void* first, std::int64_t count, std::size_t stride, T exponent) {
    T found = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        T bits;
        std::memcpy(&bits, static_cast<const std::byte*>(first) + i * static_cast<std::int64_t>(stride), sizeof bits);
        found = static_cast<T>(found | static_cast<T>((bits & exponent) == exponent));
    }
    return found == 0;
}

bool blocks_are_finite(const kernels::F32::Block* blocks, std::int64_t count) {
    return all_finite(blocks, count, sizeof *blocks, kF32Exponent);
}
bool blocks_are_finite(const kernels::BF16::Block* blocks, std::int64_t count) {
    return all_finite(blocks, count, sizeof *blocks, kBf16Exponent);
}
bool blocks_are_finite(const kernels::F16::Block* blocks, std::int64_t count) {
    return all_finite(blocks, count, sizeof *blocks, kF16Exponent);
}
// Powers of two: 255 stands for NaN, and under 254 the largest codes overflow.
bool blocks_are_finite(const kernels::MXFP4::Block* blocks, std::int64_t count) {
    std::uint8_t most = 0;
    for (std::int64_t i = 0; i < count; ++i) most = std::max(most, blocks[i].exponent);
    return most <= kernels::MXFP4::kMostExponent;
}
// Quantised blocks: codes and packed scales are integers, so only d and dmin can be NaN or infinite.
template <class Block>
bool blocks_are_finite(const Block* blocks, std::int64_t count) {
    if (!all_finite(&blocks->d, count, sizeof *blocks, kF16Exponent)) return false;
    if constexpr (requires { blocks->dmin; }) return all_finite(&blocks->dmin, count, sizeof *blocks, kF16Exponent);
    return true;
}

}  // namespace

std::int64_t first_row_not_finite(const kernels::TensorView& tensor) {
    const std::int64_t bytes = tensor.row_bytes();
    for (std::int64_t row = 0; tensor.packing != nullptr && row < tensor.rows; ++row) {
        if (!kernels::packed_is_finite(*tensor.packing, tensor.data + row * bytes, tensor.cols)) return row;
    }
    if (tensor.packing != nullptr) return -1;
    return kernels::visit_quant_type(tensor.quant_type, [&](auto type) -> std::int64_t {
        using Block = typename decltype(type)::Block;
        for (std::int64_t row = 0; row < tensor.rows; ++row) {
            const auto* blocks = reinterpret_cast<const Block*>(tensor.data + row * bytes);
            if (!blocks_are_finite(blocks, tensor.cols / decltype(type)::kElements)) return row;
        }
        return -1;
    });
}

}  // namespace foresay::core
