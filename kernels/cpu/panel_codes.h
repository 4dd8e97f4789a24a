// kernels/cpu/panel_codes.h: the codes of a group of 32 inputs of 16 rows, as bytes, become the vectors of a panel
// (kernels/cpu/panel_blocks.h).
//
// Cost:     loops over the 16 outputs have constant lengths and no branch, so that compilers make vectors of them.
// Threads:  any; everything here writes its arguments only.
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/cpu/panel_blocks.h"
#include "kernels/quant/code_stream.h"

namespace foresay::kernels::cpu {

// A word holds the codes of four neighbouring inputs of an output, one per byte: words[g] those of inputs 4 g to
// 4 g + 3. Masks keep every shift within its byte.
struct PanelGroup {
    std::uint32_t words[8][kPanelOutputs];

    void set(int output, const GroupBytes& codes) {
        for (int e = 0; e < 4; ++e) {
            words[2 * e][output] = static_cast<std::uint32_t>(codes.eights[e]);
            words[2 * e + 1][output] = static_cast<std::uint32_t>(codes.eights[e] >> 32);
        }
    }
    void set(int output, const std::uint8_t (&codes)[kGroupInputs]) {
        GroupBytes group;
        std::memcpy(&group, codes, sizeof group);
        set(output, group);
    }
    // For rows beyond the matrix.
    void clear(int output) { set(output, GroupBytes{}); }
};

// out[output] = of(output)
template <class Of>
void put_vector(std::uint8_t (&out)[kVectorBytes], const Of& of) {
    std::uint32_t vector[kPanelOutputs];
    for (int o = 0; o < kPanelOutputs; ++o) vector[o] = of(o);
    std::memcpy(out, vector, sizeof vector);
}

// Four bits of each code: low[j] gets vector j in its low nibbles and vector j + 4 in its high ones.
inline void put_low_nibbles(const PanelGroup& group, std::uint8_t (&low)[4][kVectorBytes]) {
    constexpr std::uint32_t kNibbles = 0x0f0f0f0f;
    for (int j = 0; j < 4; ++j) {
        put_vector(low[j],
                   [&](int o) { return (group.words[j][o] & kNibbles) | (group.words[j + 4][o] & kNibbles) << 4; });
    }
}
// Two bits of each code, from `shift` on, of the vectors 4 h to 4 h + 3.
inline void put_pairs(const PanelGroup& group, int h, int shift, std::uint8_t (&out)[kVectorBytes]) {
    constexpr std::uint32_t kPairs = 0x03030303;
    put_vector(out, [&](int o) {
        std::uint32_t bits = 0;
        for (int j = 0; j < 4; ++j) bits |= (group.words[4 * h + j][o] >> shift & kPairs) << (2 * j);
        return bits;
    });
}
// Bit `bit` of each code.
inline void put_bit(const PanelGroup& group, int bit, std::uint8_t (&out)[kVectorBytes]) {
    constexpr std::uint32_t kLowest = 0x01010101;
    put_vector(out, [&](int o) {
        std::uint32_t bits = 0;
        for (int g = 0; g < 8; ++g) bits |= (group.words[g][o] >> bit & kLowest) << g;
        return bits;
    });
}

inline void put(const PanelGroup& group, Codes2& out) {
    for (int h = 0; h < 2; ++h) put_pairs(group, h, 0, out.low[h]);
}
inline void put(const PanelGroup& group, Codes3& out) {
    for (int h = 0; h < 2; ++h) put_pairs(group, h, 0, out.low[h]);
    put_bit(group, 2, out.third);
}
inline void put(const PanelGroup& group, Codes4& out) { put_low_nibbles(group, out.low); }
inline void put(const PanelGroup& group, Codes5& out) {
    put_low_nibbles(group, out.low);
    put_bit(group, 4, out.fifth);
}
inline void put(const PanelGroup& group, Codes6& out) {
    put_low_nibbles(group, out.low);
    for (int h = 0; h < 2; ++h) put_pairs(group, h, 4, out.upper[h]);
}
// Without the 128 that panels of Q8_0 add.
inline void put(const PanelGroup& group, Codes8& out) { std::memcpy(out.vectors, group.words, sizeof out.vectors); }

}  // namespace foresay::kernels::cpu
