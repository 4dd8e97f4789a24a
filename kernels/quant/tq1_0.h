// kernels/quant/tq1_0.h: codes of three states, five to a byte, 256 to a block with one scale.
//
// Layout:   54 bytes for 256 values: 48 bytes of five codes, 4 bytes of four, f16 d. A byte is a fraction of 256 in
//           base three, rounded up; its digits are codes. Of the first 32 bytes come 160 values, digit after digit:
//           value 32 n + j is digit n of byte j. The next 16 bytes hold 80 values in the same way, the last 4 hold 16.
//               value = d * (code - 1)            1.6875 bits per value
// Precision: exact in float32.
// Kernels:  Q4_0 with codes 7, 8 and 9.
// Source:   GGUF type 34.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/quant/f16.h"
#include "kernels/quant/pack_codes.h"

namespace foresay::kernels {

struct TQ1_0 {
    static constexpr const char* kName = "TQ1_0";
    static constexpr std::uint32_t kGgmlType = 34;
    static constexpr int kElements = 256;
    using Packed = Q4_0;

    struct Block {
        std::uint8_t codes[52];
        StoredF16 d;
    };
    static_assert(sizeof(Block) == 54 && alignof(Block) == 1 && offsetof(Block, d) == 52);

    // Code of value `element`, 0 to 2.
    static int code(const Block& block, int element) {
        const bool first = element < 160, second = element < 240;
        const int from = first ? 0 : second ? 160 : 240, bytes = first ? 32 : second ? 16 : 4;
        const int digit = (element - from) / bytes;
        constexpr unsigned kPowers[5] = {1, 3, 9, 27, 81};
        const unsigned byte = block.codes[from / 5 + (element - from) % bytes];
        return static_cast<int>((byte * kPowers[digit] & 255u) * 3 >> 8);
    }
    static float dequantize(const Block& block, int element) {
        return block.d.value() * static_cast<float>(code(block, element) - 1);
    }
    static void pack(const Block& block, Q4_0::Block* out) {
        // The digits of 32, 16 and 4 bytes, the first ones first.
        std::uint8_t codes[kElements];
        std::uint8_t* to = codes;
        const auto put_digits = [&](const std::uint8_t* bytes, auto count, int digits) {
            unsigned power = 1;
            for (int digit = 0; digit < digits; ++digit, power *= 3, to += count) {
                for (int j = 0; j < count; ++j) {
                    to[j] = static_cast<std::uint8_t>(7 + ((bytes[j] * power & 255u) * 3 >> 8));
                }
            }
        };
        put_digits(block.codes, std::integral_constant<int, 32>(), 5);
        put_digits(block.codes + 32, std::integral_constant<int, 16>(), 5);
        put_digits(block.codes + 48, std::integral_constant<int, 4>(), 4);
        for (int b = 0; b < kElements / Q4_0::kElements; ++b, ++out) {
            out->d = block.d;
            GroupBytes group;
            std::memcpy(&group, codes + Q4_0::kElements * b, sizeof group);
            set_codes(*out, group);
        }
    }
};

}  // namespace foresay::kernels
