// kernels/cpu/panel_blocks.h: one block of packed weights. kernels/cpu/panels.cpp writes it, the kernels in
// kernels/cpu/isa read it.
//
// Layout:   a block covers the 16 outputs of its panel and a fixed number of inputs. Every array is a whole number of
//           vectors of 16 outputs, so that kernels never work across lanes:
//             vector of codes   64 bytes, the operand of an int8 dot product: byte 4 * output + i is the code of
//                               input i of four. A group of 32 inputs has eight such vectors, g = 0..7.
//             d, dmin           float16 for each output
//           The size of a block is a multiple of 64 bytes (PanelF16: 32), and panels begin at multiples of 64 bytes.
//           Lossless: every number of the file is kept unchanged.
#pragma once

#include <cstdint>

#include "kernels/quant_type.h"

namespace foresay::kernels::cpu {

inline constexpr int kPanelOutputs = 16;
inline constexpr int kGroupInputs = 32;  // inputs whose products are summed as integers
inline constexpr int kVectorBytes = 64;  // codes of 16 outputs x 4 inputs

// The codes of a group of 32 inputs, by bits per code.
struct Codes4 {
    std::uint8_t low[4][kVectorBytes];  // low[j]: vector j in the low nibbles, vector j + 4 in the high ones
};
struct Codes5 {
    std::uint8_t low[4][kVectorBytes];
    std::uint8_t fifth[kVectorBytes];  // bit g of each byte: bit 4 of the codes of vector g
};
struct Codes6 {
    std::uint8_t low[4][kVectorBytes];
    std::uint8_t upper[2][kVectorBytes];  // upper[h], bits 2 j and 2 j + 1: bits 4 and 5 of vector 4 h + j
};
struct Codes8 {
    std::uint8_t vectors[8][kVectorBytes];  // code + 128
};

// The 6-bit scales and minima of two neighbouring groups a and b.
struct PairScales {
    std::uint8_t low[2][kPanelOutputs];  // of a, of b: scale & 15 | (minimum & 15) << 4
    std::uint8_t high[kPanelOutputs];    // scale_a >> 4 | minimum_a >> 4 << 2 | scale_b >> 4 << 4 | minimum_b >> 4 << 6
};

// The blocks, by quantisation type.
struct PanelQ4_0 {
    static constexpr int kInputs = 64;
    std::uint16_t d[2][kPanelOutputs];  // by group
    Codes4 codes[2];
};
struct PanelQ8_0 {
    static constexpr int kInputs = 64;
    std::uint16_t d[2][kPanelOutputs];
    Codes8 codes[2];
};
// d: 2^(e - 128) as bfloat16, which holds every exponent. Codes are those of the file.
struct PanelMXFP4 {
    static constexpr int kInputs = 64;
    std::uint16_t d[2][kPanelOutputs];
    Codes4 codes[2];
};
struct PanelQ4_K {
    static constexpr int kInputs = 256;
    std::uint16_t d[kPanelOutputs], dmin[kPanelOutputs];
    PairScales scales[4];
    Codes4 codes[8];
};
struct PanelQ5_K {
    static constexpr int kInputs = 256;
    std::uint16_t d[kPanelOutputs], dmin[kPanelOutputs];
    PairScales scales[4];
    Codes5 codes[8];
};
struct PanelQ6_K {
    static constexpr int kInputs = 256;
    std::uint16_t d[kPanelOutputs];
    std::uint8_t unused[32];
    std::int8_t scales[16][kPanelOutputs];  // by 16 inputs
    Codes6 codes[8];
};
// Float weights: one input per block. PanelF16 also holds bf16.
struct PanelF16 {
    static constexpr int kInputs = 1;
    std::uint16_t values[kPanelOutputs];
};
struct PanelF32 {
    static constexpr int kInputs = 1;
    float values[kPanelOutputs];
};
static_assert(sizeof(PanelQ4_0) == 576 && sizeof(PanelQ8_0) == 1088 && sizeof(PanelQ4_K) == 2304 &&
              sizeof(PanelQ5_K) == 2816 && sizeof(PanelQ6_K) == 3392 && sizeof(PanelMXFP4) == 576 &&
              sizeof(PanelF16) == 32 && sizeof(PanelF32) == 64);

struct PanelFormat {
    int block_inputs;  // inputs per block
    int block_bytes;   // bytes per block
};

template <class Block>
inline constexpr PanelFormat kPanelFormat = {Block::kInputs, static_cast<int>(sizeof(Block))};

constexpr PanelFormat panel_format(QuantType quant_type) {
    switch (quant_type) {
        case QuantType::q4_0:
            return kPanelFormat<PanelQ4_0>;
        case QuantType::q8_0:
            return kPanelFormat<PanelQ8_0>;
        case QuantType::q4_k:
            return kPanelFormat<PanelQ4_K>;
        case QuantType::q5_k:
            return kPanelFormat<PanelQ5_K>;
        case QuantType::q6_k:
            return kPanelFormat<PanelQ6_K>;
        case QuantType::mxfp4:
            return kPanelFormat<PanelMXFP4>;
        case QuantType::f16:
        case QuantType::bf16:
            return kPanelFormat<PanelF16>;
        case QuantType::f32:
            return kPanelFormat<PanelF32>;
    }
    return kPanelFormat<PanelF32>;
}

}  // namespace foresay::kernels::cpu
