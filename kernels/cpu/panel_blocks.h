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
//
// Tensors whose codes use a part of their type's range lie in narrower panels (PanelType): files in Q5_0 and IQ4_NL
// come as Q8_0, those in Q3_K as Q6_K, integers of 2 and 3 bits as Q4_0 (kernels/quant/stored_type.h). The integer sums
// are the same, so the results have the same bits as from the type's own panels.
#pragma once

#include <cstdint>

#include "kernels/quant/scale_form.h"
#include "kernels/quant_type.h"

namespace foresay::kernels::cpu {

inline constexpr int kPanelOutputs = 16;
inline constexpr int kGroupInputs = 32;  // inputs whose products are summed as integers
inline constexpr int kVectorBytes = 64;  // codes of 16 outputs x 4 inputs

// How a matrix lies in panels: as its quantisation type has it, or narrower.
enum class PanelType : std::uint8_t {
    f32,
    f16,
    bf16,
    q4_0,
    q8_0,
    q4_k,
    q5_k,
    q6_k,
    mxfp4,
    packed,          // as PackedPanels says
    q2_of_q4_0,      // numbers from -2 to 1
    q3_of_q4_0,      // from -4 to 3
    q5_of_q8_0,      // from -16 to 15
    iq4_nl_of_q8_0,  // the sixteen of IQ4_NL
    q3_of_q6_k,      // from -4 to 3
};

// The panels that a quantisation type has of its own.
constexpr PanelType own_panel_type(QuantType quant_type) { return static_cast<PanelType>(quant_type); }
static_assert(
    own_panel_type(QuantType::f32) == PanelType::f32 && own_panel_type(QuantType::f16) == PanelType::f16 &&
    own_panel_type(QuantType::bf16) == PanelType::bf16 && own_panel_type(QuantType::q4_0) == PanelType::q4_0 &&
    own_panel_type(QuantType::q8_0) == PanelType::q8_0 && own_panel_type(QuantType::q4_k) == PanelType::q4_k &&
    own_panel_type(QuantType::q5_k) == PanelType::q5_k && own_panel_type(QuantType::q6_k) == PanelType::q6_k &&
    own_panel_type(QuantType::mxfp4) == PanelType::mxfp4 && own_panel_type(QuantType::packed) == PanelType::packed);

// The codes of a group of 32 inputs, by bits per code.
struct Codes2 {
    std::uint8_t low[2][kVectorBytes];  // low[h], bits 2 j and 2 j + 1: vector 4 h + j
};
struct Codes3 {
    std::uint8_t low[2][kVectorBytes];
    std::uint8_t third[kVectorBytes];  // bit g of each byte: bit 2 of the codes of vector g
};
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
// Code + 2, + 4 and + 16.
struct PanelQ2OfQ4_0 {
    static constexpr int kInputs = 64;
    std::uint16_t d[2][kPanelOutputs];
    Codes2 codes[2];
};
struct PanelQ3OfQ4_0 {
    static constexpr int kInputs = 64;
    std::uint16_t d[2][kPanelOutputs];
    Codes3 codes[2];
};
struct PanelQ5OfQ8_0 {
    static constexpr int kInputs = 64;
    std::uint16_t d[2][kPanelOutputs];
    Codes5 codes[2];
};
// Places in kIq4Numbers.
struct PanelIQ4_NL {
    static constexpr int kInputs = 64;
    std::uint16_t d[2][kPanelOutputs];
    Codes4 codes[2];
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
// Code + 4 instead of code + 32.
struct PanelQ3OfQ6_K {
    static constexpr int kInputs = 256;
    std::uint16_t d[kPanelOutputs];
    std::uint8_t unused[32];
    std::int8_t scales[16][kPanelOutputs];
    Codes3 codes[8];
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
static_assert(sizeof(PanelQ2OfQ4_0) == 320 && sizeof(PanelQ3OfQ4_0) == 448 && sizeof(PanelQ5OfQ8_0) == 704 &&
              sizeof(PanelIQ4_NL) == 576 && sizeof(PanelQ3OfQ6_K) == 1856);

// Panels of packed rows (kernels/quant/packing.h): groups of 32 inputs, each with the codes of the 16 outputs in Codes2
// to Codes8 (there the code itself), and before some a head of 16 times the file's bytes:
//   f16_minimum, f16_zero  f16 d, f16 m or zero
//   f32_minimum, f32_zero  f32 d, f32 m or zero
//   k_minimum              f16 d, f16 dmin; then a byte for each output, of 16 inputs after 16 inputs
//   k_table                f32 d; then an int8 for each output likewise
//   f32_table              f32, f32
//   e4m3                   f32, 256 d; the codes are bytes (input, output)
// A whole panel takes 16 times the bytes of a row.
struct PackedPanels {
    ScaleForm form = ScaleForm::f16_minimum;
    const std::uint8_t* kinds = nullptr;  // of `period` groups; they repeat
    int period = 0;
    std::uint8_t table[16] = {};  // numbers + 128
};

struct PanelFormat {
    int block_inputs;  // inputs per block
    int block_bytes;   // bytes per block
};

template <class Block>
inline constexpr PanelFormat kPanelFormat = {Block::kInputs, static_cast<int>(sizeof(Block))};

// Calls body(Block{}) with the struct of a panel type.
template <class Body>
constexpr decltype(auto) visit_panel_type(PanelType type, Body&& body) {
    switch (type) {
        case PanelType::q4_0:
            return body(PanelQ4_0{});
        case PanelType::q8_0:
            return body(PanelQ8_0{});
        case PanelType::q4_k:
            return body(PanelQ4_K{});
        case PanelType::q5_k:
            return body(PanelQ5_K{});
        case PanelType::q6_k:
            return body(PanelQ6_K{});
        case PanelType::mxfp4:
            return body(PanelMXFP4{});
        case PanelType::q2_of_q4_0:
            return body(PanelQ2OfQ4_0{});
        case PanelType::q3_of_q4_0:
            return body(PanelQ3OfQ4_0{});
        case PanelType::q5_of_q8_0:
            return body(PanelQ5OfQ8_0{});
        case PanelType::iq4_nl_of_q8_0:
            return body(PanelIQ4_NL{});
        case PanelType::q3_of_q6_k:
            return body(PanelQ3OfQ6_K{});
        case PanelType::f16:
        case PanelType::bf16:
            return body(PanelF16{});
        case PanelType::f32:
        case PanelType::packed:  // has no block: see PackedPanels
            break;
    }
    return body(PanelF32{});
}

constexpr PanelFormat panel_format(PanelType type) {
    return visit_panel_type(type, []<class Block>(const Block&) { return kPanelFormat<Block>; });
}

}  // namespace foresay::kernels::cpu
