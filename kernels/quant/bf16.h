// kernels/quant/bf16.h: bfloat16 values, the upper half of a float32.
//
// Layout:   1 sign, 8 exponent, 7 mantissa bits; little-endian, any alignment.
// Precision: bf16_to_f32 is exact; f32_to_bf16 rounds to nearest, ties to even. NaN stays NaN and becomes quiet.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/quant/f16.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

FORESAY_HOST_DEVICE inline float bf16_to_f32(std::uint16_t half) {
    return f32_from_bits(static_cast<std::uint32_t>(half) << 16);
}

FORESAY_HOST_DEVICE inline std::uint16_t f32_to_bf16(float value) {
    const std::uint32_t bits = f32_bits(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
    return static_cast<std::uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

struct BF16 {
    static constexpr QuantType kQuantType = QuantType::bf16;
    static constexpr std::uint32_t kGgmlType = 30;
    static constexpr int kElements = 1;

    struct Block {
        std::uint8_t low, high;
    };
    static_assert(sizeof(Block) == 2 && alignof(Block) == 1);

    FORESAY_HOST_DEVICE static float dequantize(const Block& block, int /*element*/) {
        return bf16_to_f32(static_cast<std::uint16_t>(block.low | (block.high << 8)));
    }
    static void dequantize_block(const Block& block, float* out) { *out = dequantize(block, 0); }
};

}  // namespace foresay::kernels
