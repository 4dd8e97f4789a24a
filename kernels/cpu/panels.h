// kernels/cpu/panels.h: the one layout in which the CPU backend keeps weights, whatever their encoding.
//
// Layout:   a matrix is a row of panels; a panel is 16 output features x all inputs, stored input-major, so that one
//           vector holds the 16 outputs and no sum ever runs across lanes. Outputs are padded to 16 and inputs to the
//           block with zero scales. Panels follow one another, so that a thread streams through memory in one direction.
//           Codes: a vector of 64 bytes holds 16 outputs x 4 consecutive inputs (byte 4 * output + input), the operand of
//           an int8 dot product. A group of 32 inputs has 8 such vectors, numbered g = 0..7.
//             4-bit codes   4 vectors: vector j has g = j in the low and g = j + 4 in the high nibbles
//             5th bit       1 vector: bit g of each byte
//             5th, 6th bit  2 vectors: vector h has bits 2 (g % 4), + 1 for g = 4 h .. 4 h + 3
//           Blocks, in bytes; d, m are float16 x 16 outputs:
//             q4_0   64 inputs   [d][d] [4-bit codes] x 2                                                 576
//             q8_0   64 inputs   [d][d] [8 vectors of code + 128] x 2                                    1088
//             q4_k  256 inputs   [d][m] [scales, 4 x 48] [4-bit codes] x 8                                2304
//             q5_k  256 inputs   [d][m] [scales, 4 x 48] [4-bit codes, 5th bit] x 8                       2816
//             q6_k  256 inputs   [d][32 unused] [16 x 16 int8 scales] [4-bit codes, 5th and 6th bit] x 8  3392
//             f16, bf16, f32     one input: 16 values
//           The 48 bytes of scales of two groups a, b: 16 x (scale_a & 15 | min_a << 4), 16 x (the same of b),
//           16 x (scale_a >> 4 | min_a >> 4 << 2 | scale_b >> 4 << 4 | min_b >> 4 << 6).
//           Lossless: every number of the file is kept as it is.
// Cost:     packing reads each block once; about 1 ns per weight and thread.
#pragma once

#include <cstdint>

#include "kernels/cpu/arena.h"
#include "kernels/encoding.h"

namespace foresay::kernels::cpu {

class ThreadPool;

inline constexpr int kPanelOutputs = 16;
inline constexpr int kGroupInputs = 32;  // inputs whose codes are summed as integers

constexpr std::int64_t round_up(std::int64_t value, std::int64_t step) { return (value + step - 1) / step * step; }

struct PanelFormat {
    int block_inputs;  // inputs per block
    int block_bytes;   // bytes per block of one panel
};

constexpr PanelFormat panel_format(Encoding encoding) {
    switch (encoding) {
        case Encoding::q4_0:
            return {64, 576};
        case Encoding::q8_0:
            return {64, 1088};
        case Encoding::q4_k:
            return {256, 2304};
        case Encoding::q5_k:
            return {256, 2816};
        case Encoding::q6_k:
            return {256, 3392};
        case Encoding::f16:
        case Encoding::bf16:
            return {1, 32};
        case Encoding::f32:
            return {1, 64};
    }
    return {1, 64};
}

constexpr bool is_float(Encoding encoding) {
    return encoding == Encoding::f32 || encoding == Encoding::f16 || encoding == Encoding::bf16;
}

struct PanelMatrix {
    Encoding encoding = Encoding::f32;
    std::int64_t outputs = 0;      // as in the file
    std::int64_t inputs = 0;       // as in the file
    int panels = 0;                // ceil(outputs / 16)
    int blocks = 0;                // per panel
    std::int64_t panel_bytes = 0;  // blocks * block_bytes
    Block memory;

    const std::uint8_t* panel(int p) const {
        return reinterpret_cast<const std::uint8_t*>(memory.data) + p * panel_bytes;
    }
    std::int64_t padded_outputs() const { return static_cast<std::int64_t>(panels) * kPanelOutputs; }
};

// Bytes that pack() will take for a tensor.
std::int64_t packed_bytes(const TensorView& tensor);

PanelMatrix pack(const TensorView& tensor, Arena& arena, ThreadPool& pool);

}  // namespace foresay::kernels::cpu
