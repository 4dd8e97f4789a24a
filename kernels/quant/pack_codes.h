// kernels/quant/pack_codes.h: writes single codes into the blocks that the kernels multiply, for types of files that
// are packed into them (kernels/quant/stored_type.h).
#pragma once

#include <cstdint>

#include "kernels/quant/q4_0.h"
#include "kernels/quant/q6_k.h"

namespace foresay::kernels {

// Blocks of Q4_0 with one scale. `number(i)` is the code of value i less 8.
template <class Number>
void pack_codes(StoredF16 d, int elements, Q4_0::Block* out, const Number& number) {
    for (int begin = 0; begin < elements; begin += Q4_0::kElements, ++out) {
        out->d = d;
        for (int j = 0; j < 16; ++j) {
            const int first = number(begin + j) + 8, second = number(begin + j + 16) + 8;
            out->codes[j] = static_cast<std::uint8_t>(first | second << 4);
        }
    }
}

// Sets the code of value `element`, which is zero before, to `number` + 32.
inline void set_code(Q6_K::Block& block, int element, int number) {
    const int half = element / 128, quarter = element % 128 / 32, l = element % 32;
    const int code = number + 32;
    std::uint8_t& low = block.low[half * 64 + quarter % 2 * 32 + l];
    std::uint8_t& high = block.high[half * 32 + l];
    low = static_cast<std::uint8_t>(low | (code & 15) << (quarter / 2 * 4));
    high = static_cast<std::uint8_t>(high | (code >> 4) << (quarter * 2));
}

}  // namespace foresay::kernels
