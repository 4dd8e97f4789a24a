#include "core/weights/mxfp4.h"

#include "kernels/quant/mxfp4.h"

namespace foresay::core {
namespace {

// The codes of a group from the order of safetensors to that of blocks.
void reorder(const std::byte* from, std::uint8_t (&to)[16]) {
    for (std::size_t j = 0; j < 16; ++j) {
        const auto code = [&](std::size_t value) {
            return std::to_integer<unsigned>(from[value / 2]) >> (4 * (value % 2)) & 15u;
        };
        to[j] = static_cast<std::uint8_t>(code(j) | code(j + 16) << 4);
    }
}

}  // namespace

kernels::TensorView join_mxfp4(const std::byte* codes, const std::byte* exponents, std::int64_t first,
                               std::int64_t step, std::int64_t rows, std::int64_t cols, std::vector<std::byte>& bytes) {
    using Block = kernels::MXFP4::Block;
    const std::int64_t blocks = cols / kMxfp4Values;
    bytes.resize(static_cast<std::size_t>(rows * blocks) * sizeof(Block));
    auto* out = reinterpret_cast<Block*>(bytes.data());
    for (std::int64_t r = 0; r < rows; ++r) {
        for (std::int64_t b = 0; b < blocks; ++b, ++out) {
            const std::int64_t at = (first + r * step) * blocks + b;
            out->exponent = std::to_integer<std::uint8_t>(exponents[at]);
            reorder(codes + at * kMxfp4Bytes, out->codes);
        }
    }
    return {kernels::QuantType::mxfp4, rows, cols, bytes.data()};
}

}  // namespace foresay::core
