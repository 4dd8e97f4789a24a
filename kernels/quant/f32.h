// kernels/quant/f32.h: plain float32 values.
//
// Layout:   little-endian IEEE binary32, any alignment.
// Precision: exact.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/host_device.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

struct F32 {
    static constexpr QuantType kQuantType = QuantType::f32;
    static constexpr std::uint32_t kGgmlType = 0;
    static constexpr int kElements = 1;

    struct Block {
        std::uint8_t bytes[4];
    };
    static_assert(sizeof(Block) == 4 && alignof(Block) == 1);

    FORESAY_HOST_DEVICE static float dequantize(const Block& block, int /*element*/) {
        float value;
        std::memcpy(&value, block.bytes, sizeof(value));
        return value;
    }
    static void dequantize_block(const Block& block, float* out) { *out = dequantize(block, 0); }
};

}  // namespace foresay::kernels
