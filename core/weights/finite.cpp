#include "core/weights/finite.h"

#include <cstring>

namespace foresay::core {
namespace {

using kernels::Encoding;

// Where the float16 numbers of a block lie; all other values of it are integers. -1: no second one.
struct Scales {
    int first = 0, second = -1;
};

Scales scales_of(Encoding encoding) {
    switch (encoding) {
        case Encoding::q4_k:
        case Encoding::q5_k:
            return {0, 2};  // d and dmin
        case Encoding::q6_k:
            return {208, -1};  // d comes last
        case Encoding::q4_0:
        case Encoding::q8_0:
        case Encoding::f32:
        case Encoding::f16:
        case Encoding::bf16:
            break;
    }
    return {0, -1};
}

// The numbers of type T at `data`, one every `stride` bytes: an exponent of all ones is NaN or an infinity.
template <class T>
bool any_not_finite(const std::byte* data, std::int64_t count, std::int64_t stride, T exponent) {
    T found = 0;
    for (std::int64_t i = 0; i < count; ++i) {
        T bits;
        std::memcpy(&bits, data + i * stride, sizeof bits);
        found = static_cast<T>(found | static_cast<T>((bits & exponent) == exponent));
    }
    return found != 0;
}

bool row_is_finite(Encoding encoding, const std::byte* row, std::int64_t blocks) {
    constexpr std::uint16_t kHalf = 0x7c00, kBrain = 0x7f80;
    const std::int64_t stride = kernels::info(encoding).block_bytes;
    if (encoding == Encoding::f32) return !any_not_finite<std::uint32_t>(row, blocks, stride, 0x7f800000u);
    if (encoding == Encoding::bf16) return !any_not_finite<std::uint16_t>(row, blocks, stride, kBrain);
    const Scales scales = scales_of(encoding);
    return !any_not_finite<std::uint16_t>(row + scales.first, blocks, stride, kHalf) &&
           (scales.second < 0 || !any_not_finite<std::uint16_t>(row + scales.second, blocks, stride, kHalf));
}

}  // namespace

std::int64_t first_row_not_finite(const kernels::TensorView& tensor) {
    const std::int64_t bytes = kernels::row_bytes(tensor.encoding, tensor.cols);
    const std::int64_t blocks = tensor.cols / kernels::info(tensor.encoding).block_elements;
    for (std::int64_t row = 0; row < tensor.rows; ++row) {
        if (!row_is_finite(tensor.encoding, tensor.data + row * bytes, blocks)) return row;
    }
    return -1;
}

}  // namespace foresay::core
