// kernels/cuda/weights/panel_format.h: one block of a panel for every quantisation type: where each number lies.
//
// Layout:   a block is 32 rows x 64 inputs (256 for K-quants). Codes lie as the operand A of mma.m16n8k16 wants them,
//           so that a lane of a warp reads its share with 16-byte loads and unpacks it with masks alone. Row and input
//           of a number fall apart into
//               row    16 t + 8 h + r          t tile, h half, r = lane / 4
//               input  32 g + 16 s + 4 q + c   g group, s step (one mma), q = lane % 4, c = 0..3
//           4-bit plane of 64 inputs, 1024 bytes: word (t, lane, g, h) holds the 8 codes (s, c), code (s, c) in nibble
//           2 s + c / 2 + 4 (c % 2): masks 0x000f000f and 0x00f000f0 then give pairs (c, c + 1) as the low bits of two
//           float16 numbers, which are subnormal and so equal to code x 2^-24 or code x 2^-20.
//           Upper bit plane (Q5_K), 256 bytes per 64 inputs: word (lane, t); upper two bits (Q6_K), 512 bytes: word
//           (t, lane, g); bits placed so that a shift brings them above their nibbles.
//           Blocks, in bytes; scales are float16 unless said otherwise:
//             q4_0   64 inputs   [4-bit plane] [scales (r, t, h, g)]                                          1152
//             q8_0   64 inputs   [bytes code + 128, words (t, g, lane, h, s)] [scales (r, t, h, g)]           2176
//             mxfp4  64 inputs   [4-bit plane, bits as FloatCodePlace] [exponents, bytes (r, t, h, g)]        1088
//             q4_k  256 inputs   [4-bit plane] x 4 [d, dmin (r, t, h)] [6-bit scales, 12 bytes (r, t, h)]     4608
//             q5_k  256 inputs   [4-bit plane] x 4 [fifth bit] x 4 [d, dmin (r, t, h)] [6-bit scales]         5632
//             q6_k  256 inputs   [4-bit plane] x 4 [upper two bits] x 4 [int8 scales (sub-block, r, t, h, group of 16)]
//                                [d (r, t, h)]                                                                6720
//             f16, bf16  64 inputs   words (t, g, s, lane, c / 2, h)                                          4096
//             f32        64 inputs   (row, input)                                                             8192
//           The 12 bytes of a row's 6-bit scales, three words: nibbles of 8 scales, nibbles of 8 minima, the upper two
//           bits of both (ScaleCodePlace). Even groups lie in the lower halves and odd ones in the upper, so that two
//           scales come as a pair like two codes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/quant/f16.h"
#include "kernels/quant_type.h"

namespace foresay::kernels::cuda {

inline constexpr int kBlockRows = 32;
inline constexpr int kPlaneBytes = 1024;  // a 4-bit plane

// The blocks of quantised weights. Rows of d, dmin and scales are numbered by Place::row_slot().
struct PanelQ4_0 {
    std::uint8_t codes[kPlaneBytes];
    StoredF16 d[kBlockRows][2];  // g
};
struct PanelQ8_0 {
    std::uint8_t codes[2 * kPlaneBytes];
    StoredF16 d[kBlockRows][2];
};
struct RowScales {
    StoredF16 d, dmin;
};
struct RowScaleCodes {
    std::uint32_t scales, minima, upper;  // ScaleCodePlace
};
struct PanelMXFP4 {
    std::uint8_t codes[kPlaneBytes];
    std::uint8_t exponents[kBlockRows][2];  // g
};
struct PanelQ4_K {
    std::uint8_t codes[4][kPlaneBytes];
    RowScales d[kBlockRows];
    RowScaleCodes scales[kBlockRows];
};
struct PanelQ5_K {
    std::uint8_t codes[4][kPlaneBytes];
    std::uint8_t fifth[4][kPlaneBytes / 4];
    RowScales d[kBlockRows];
    RowScaleCodes scales[kBlockRows];
};
struct PanelQ6_K {
    std::uint8_t codes[4][kPlaneBytes];
    std::uint8_t upper[4][kPlaneBytes / 2];
    std::int8_t scales[4][kBlockRows][4];  // [sub-block][row][16 inputs of it]
    StoredF16 d[kBlockRows];
};
static_assert(sizeof(PanelQ4_0) == 1152 && sizeof(PanelQ8_0) == 2176 && sizeof(PanelQ4_K) == 4608 &&
              sizeof(PanelQ5_K) == 5632 && sizeof(PanelQ6_K) == 6720 && sizeof(PanelMXFP4) == 1088);

struct BlockFormat {
    std::int32_t inputs = 64;      // per block
    std::int32_t bytes = 0;        // per block of 32 rows
    std::int32_t scale_begin = 0;  // float16 scales, for random weights; [begin, end)
    std::int32_t scale_end = 0;
};

FORESAY_HOST_DEVICE constexpr BlockFormat block_format(QuantType quant_type) {
    switch (quant_type) {
        case QuantType::q4_0:
            return {64, sizeof(PanelQ4_0), offsetof(PanelQ4_0, d), sizeof(PanelQ4_0)};
        case QuantType::q8_0:
            return {64, sizeof(PanelQ8_0), offsetof(PanelQ8_0, d), sizeof(PanelQ8_0)};
        case QuantType::q4_k:
            return {256, sizeof(PanelQ4_K), offsetof(PanelQ4_K, d), offsetof(PanelQ4_K, scales)};
        case QuantType::q5_k:
            return {256, sizeof(PanelQ5_K), offsetof(PanelQ5_K, d), offsetof(PanelQ5_K, scales)};
        case QuantType::q6_k:
            return {256, sizeof(PanelQ6_K), offsetof(PanelQ6_K, d), sizeof(PanelQ6_K)};
        case QuantType::mxfp4:
            return {64, sizeof(PanelMXFP4), offsetof(PanelMXFP4, exponents), sizeof(PanelMXFP4)};
        case QuantType::f16:
        case QuantType::bf16:
            return {64, 4096, 0, 4096};
        case QuantType::f32:
            return {64, 8192, 0, 8192};
        case QuantType::packed:  // blocks have the bytes of their run (packed_format.h)
            break;
    }
    return {};
}

// A number's place in the fragments.
struct Place {
    int t, h, r, g, s, q, c;
    FORESAY_HOST_DEVICE constexpr Place(int row, int input)  // input below 64
        : t(row / 16), h(row / 8 % 2), r(row % 8), g(input / 32), s(input / 16 % 2), q(input / 4 % 4), c(input % 4) {}
    FORESAY_HOST_DEVICE constexpr int lane() const { return 4 * r + q; }
    FORESAY_HOST_DEVICE constexpr int row_slot() const { return 4 * r + 2 * t + h; }  // (r, t, h)
};

// Byte and shift of a 4-bit code in its plane.
struct BitPlace {
    int word, shift;
};
FORESAY_HOST_DEVICE constexpr BitPlace nibble_place(const Place& p) {
    return {p.t * 128 + p.lane() * 4 + 2 * p.g + p.h, 4 * (2 * p.s + p.c / 2 + 4 * (p.c % 2))};
}
// A four-bit float in the half of a word that nibble_place() gives the code: where its sign and its three other bits
// lie. Shifted to the left until these are bits 9 to 11, and the sign to bit 15, they are a float16: the number times
// 2^-14. For the first two of the four codes of a half one shift does both.
struct FloatCodePlace {
    int word, sign, magnitude;
    FORESAY_HOST_DEVICE constexpr explicit FloatCodePlace(const Place& p)
        : word(nibble_place(p).word),
          sign(16 * (p.c % 2) + (0xdecf >> (4 * (2 * p.s + p.c / 2)) & 15)),
          magnitude(16 * (p.c % 2) + 9 - 3 * (2 * p.s + p.c / 2)) {}
};
// Eight four-bit floats of a word as four pairs of float16, 2^-14 times the numbers: pair i is (s, c) = (i / 2, 2 (i %
// 2)) and its neighbour.
FORESAY_HOST_DEVICE inline void unpack_float_codes(std::uint32_t word, std::uint32_t (&p)[4]) {
    p[0] = word & 0x8e008e00u;
    p[1] = word << 3 & 0x8e008e00u;
    p[2] = (word << 6 & 0x0e000e00u) | (word << 1 & 0x80008000u);
    p[3] = (word << 9 & 0x0e000e00u) | (word << 2 & 0x80008000u);
}
// The place of a fifth bit. Pairs with c < 2 go to bit 4 of a half, the others to bit 8: places e and e + 4 share a
// shift.
FORESAY_HOST_DEVICE constexpr BitPlace fifth_place(const Place& p) {
    const int slot = 4 * p.g + 2 * p.h + p.s;  // 0..7
    const int e = slot < 4 ? slot : slot + 4;  // 0..3, 8..11
    return {p.lane() * 2 + p.t, e + 4 * (p.c / 2) + 16 * (p.c % 2)};
}
// The place of the upper two bits.
FORESAY_HOST_DEVICE constexpr BitPlace upper_place(const Place& p) {
    const int slot = 2 * p.h + p.s;                 // 0..3
    const int e = 2 * (slot % 2) + 8 * (slot / 2);  // 0, 2, 8, 10
    return {p.t * 64 + p.lane() * 2 + p.g, e + 4 * (p.c / 2) + 16 * (p.c % 2)};
}
// Byte of an 8-bit code: c 0..3 at bytes 0, 2, 1, 3 of its word.
FORESAY_HOST_DEVICE constexpr int byte_place(const Place& p) {
    return (p.t * 2 + p.g) * 512 + p.lane() * 16 + p.h * 8 + p.s * 4 + p.c / 2 + 2 * (p.c % 2);
}
// By how much the 6-bit scale and minimum of group g of a K-quant's row are shifted: in the words of nibbles, and in
// that of the upper bits. Those of scales lie where a shift by 0 or 6 brings them above nibbles at bits 0 and 4, the
// minima's in between.
struct ScaleCodePlace {
    int nibble, scale_upper, minimum_upper;
    FORESAY_HOST_DEVICE constexpr explicit ScaleCodePlace(int g)
        : nibble(16 * (g % 2) + 4 * (g / 2)),
          scale_upper(16 * (g % 2) + (0xea84 >> (4 * (g / 2)) & 15)),
          minimum_upper(16 * (g % 2) + (0xc620 >> (4 * (g / 2)) & 15)) {}
};

// Index of a 16-bit value.
FORESAY_HOST_DEVICE constexpr int half_place(const Place& p) {
    return ((p.t * 2 + p.g) * 2 + p.s) * 256 + p.lane() * 8 + (p.c / 2) * 4 + p.h * 2 + p.c % 2;
}

}  // namespace foresay::kernels::cuda
