// kernels/quant/f16.h: IEEE binary16 values, alone and as the scales inside quantised blocks.
//
// Layout:   1 sign, 5 exponent (bias 15), 10 mantissa bits; little-endian, any alignment.
// Precision: f16_to_f32 is exact; f32_to_f16 rounds to nearest, ties to even, and overflows to infinity from 65520 on.
//           NaN stays NaN and becomes quiet, as in hardware.
// Threads:  any. The conversions need float32 subnormals: the caller must not enable flush-to-zero.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

FORESAY_HOST_DEVICE inline std::uint32_t f32_bits(float value) {
    std::uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

FORESAY_HOST_DEVICE inline float f32_from_bits(std::uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof(value));
    return value;
}

// Computes all cases and selects one, so that loops over it vectorise.
FORESAY_HOST_DEVICE inline float f16_to_f32(std::uint16_t half) {
    const std::uint32_t sign = (half & 0x8000u) << 16;
    const std::uint32_t magnitude = half & 0x7fffu;
    const std::uint32_t mantissa = half & 0x3ffu;
    const std::uint32_t normal = (magnitude << 13) + 0x38000000u;  // rebias the exponent from 15 to 127
    const std::uint32_t subnormal = f32_bits(static_cast<float>(static_cast<std::int32_t>(mantissa)) * 0x1p-24f);
    const std::uint32_t quiet = mantissa != 0 ? 0x400000u : 0u;
    const std::uint32_t special = 0x7f800000u | (mantissa << 13) | quiet;
    const std::uint32_t finite = magnitude < 0x400u ? subnormal : normal;
    return f32_from_bits(sign | (magnitude < 0x7c00u ? finite : special));
}

FORESAY_HOST_DEVICE inline std::uint16_t f32_to_f16(float value) {
    const std::uint32_t bits = f32_bits(value);
    const std::uint32_t sign = (bits >> 16) & 0x8000u;
    const std::uint32_t magnitude = bits & 0x7fffffffu;
    std::uint32_t half = 0;
    if (magnitude > 0x7f800000u) {
        half = 0x7e00u | ((magnitude >> 13) & 0x3ffu);
    } else if (magnitude >= 0x477ff000u) {  // 65520: halfway from the largest finite value to the next power of two
        half = 0x7c00u;
    } else if (magnitude >= 0x38800000u) {  // 2^-14: normal
        const std::uint32_t rebased = magnitude - 0x38000000u;
        half = (rebased + 0xfffu + ((rebased >> 13) & 1u)) >> 13;
    } else {  // the ulp of 0.5f is 2^-24, the subnormal step of binary16: the addition rounds
        half = f32_bits(f32_from_bits(magnitude) + 0.5f) - f32_bits(0.5f);
    }
    return static_cast<std::uint16_t>(sign | half);
}

// A binary16 number inside a block, at any alignment.
struct StoredF16 {
    std::uint8_t low, high;

    FORESAY_HOST_DEVICE std::uint16_t bits() const { return static_cast<std::uint16_t>(low | (high << 8)); }
    FORESAY_HOST_DEVICE float value() const { return f16_to_f32(bits()); }
    FORESAY_HOST_DEVICE static StoredF16 from_bits(std::uint16_t bits) {
        return {static_cast<std::uint8_t>(bits & 0xffu), static_cast<std::uint8_t>(bits >> 8)};
    }
};
static_assert(sizeof(StoredF16) == 2 && alignof(StoredF16) == 1);

struct F16 {
    static constexpr QuantType kQuantType = QuantType::f16;
    static constexpr std::uint32_t kGgmlType = 1;
    static constexpr int kElements = 1;
    using Block = StoredF16;

    FORESAY_HOST_DEVICE static float dequantize(const Block& block, int /*element*/) { return block.value(); }
    static void dequantize_block(const Block& block, float* out) { *out = block.value(); }
};

}  // namespace foresay::kernels
