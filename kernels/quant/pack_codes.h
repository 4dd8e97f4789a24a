// kernels/quant/pack_codes.h: writes codes into the blocks that the kernels multiply, for types of files that
// are packed into them (kernels/quant/stored_type.h).
#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/quant/code_stream.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q6_k.h"

namespace foresay::kernels {

// All codes, 0 to 15.
inline void set_codes(Q4_0::Block& block, const GroupBytes& codes) {
    const std::uint64_t both[2] = {codes.eights[0] | codes.eights[2] << 4, codes.eights[1] | codes.eights[3] << 4};
    std::memcpy(block.codes, both, sizeof block.codes);
}
// A byte in each of eight.
constexpr std::uint64_t eight_of(std::uint8_t byte) { return 0x0101010101010101u * byte; }

// All codes, 0 to 63.
inline void set_codes(Q6_K::Block& block, const std::uint8_t (&codes)[256]) {
    for (int half = 0; half < 2; ++half) {
        const std::uint8_t* const c = codes + 128 * half;
        for (int l = 0; l < 32; ++l) {
            const unsigned a = c[l], b = c[l + 32], d = c[l + 64], e = c[l + 96];
            block.low[64 * half + l] = static_cast<std::uint8_t>((a & 15) | d << 4);
            block.low[64 * half + 32 + l] = static_cast<std::uint8_t>((b & 15) | e << 4);
            block.high[32 * half + l] = static_cast<std::uint8_t>(a >> 4 | b >> 4 << 2 | d >> 4 << 4 | e >> 4 << 6);
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
