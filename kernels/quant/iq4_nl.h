// kernels/quant/iq4_nl.h: 4-bit indices into sixteen numbers, in groups of 32 with one scale.
//
// Layout:   18 bytes for 32 values: f16 d, then 16 bytes of indices, which lie as the codes of Q4_0.
//               value = d * kIq4Numbers[index]    4.5 bits per value
// Precision: exact in float32.
// Kernels:  Q8_0 with the same scales; the numbers are its codes.
// Source:   GGUF type 20.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/q8_0.h"

namespace foresay::kernels {

// Denser around zero, where most weights are.
inline constexpr std::int8_t kIq4Numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                1,    13,   25,  38,  53,  69,  89,  113};

// The numbers of both indices in a byte.
struct IndexPair {
    std::int8_t low, high;
};
inline constexpr std::array<IndexPair, 256> kIq4Pairs = [] {
    std::array<IndexPair, 256> pairs{};
    for (std::size_t byte = 0; byte < pairs.size(); ++byte) {
        pairs[byte] = {kIq4Numbers[byte & 15], kIq4Numbers[byte >> 4]};
    }
    return pairs;
}();

struct IQ4_NL {
    static constexpr const char* kName = "IQ4_NL";
    static constexpr std::uint32_t kGgmlType = 20;
    static constexpr int kElements = 32;
    using Packed = Q8_0;

    struct Block {
        StoredF16 d;
        std::uint8_t indices[16];
    };
    static_assert(sizeof(Block) == 18 && alignof(Block) == 1 && offsetof(Block, indices) == 2);

    static std::int8_t number(const Block& block, int element) {
        return kIq4Numbers[block.indices[element % 16] >> (element / 16 * 4) & 15];
    }
    static float dequantize(const Block& block, int element) {
        return block.d.value() * static_cast<float>(number(block, element));
    }
    static void pack(const Block& block, Q8_0::Block* out) {
        out->d = block.d;
        for (int j = 0; j < 16; ++j) {
            const IndexPair& pair = kIq4Pairs[block.indices[j]];
            out->codes[j] = pair.low;
            out->codes[j + 16] = pair.high;
        }
    }
};

}  // namespace foresay::kernels
