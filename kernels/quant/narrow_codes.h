// kernels/quant/narrow_codes.h: tensors whose codes use a part of their type's range, and what the panels of the CPU
// take for them (kernels/cpu/panel_blocks.h). Which panels a tensor gets is decided by its codes when it is packed;
// what a format says of its codes by construction is here, so that estimates need not read them.
//
// Threads:  any; everything here is a function of its arguments.
#pragma once

#include <cstdint>

#include "kernels/quant/stored_type.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

// The numbers that codes stand for, before their scales.
struct CodeRange {
    int least = -128, greatest = 127;
    bool iq4 = false;  // all are among the sixteen of IQ4_NL
};

// Bits of a code in the narrowest panels that hold the numbers; 0: in the type's own.
constexpr int narrow_bits(QuantType type, const CodeRange& range) {
    const auto within = [&](int low, int high) { return range.least >= low && range.greatest <= high; };
    if (type == QuantType::q4_0 && within(-2, 1)) return 2;
    if (type == QuantType::q4_0 && within(-4, 3)) return 3;
    if (type == QuantType::q8_0 && range.iq4) return 4;
    if (type == QuantType::q8_0 && within(-16, 15)) return 5;
    if (type == QuantType::q6_k && within(-4, 3)) return 3;
    return 0;
}

// Bytes of a block's values, scales and all, with codes of `bits`: per 32 values, of Q6_K per 256.
constexpr std::int64_t narrow_block_bytes(QuantType type, int bits) {
    return type == QuantType::q6_k ? 20 + 32 * bits : 2 + 4 * bits;
}

// Bytes of whole blocks of a type with these numbers: in narrow panels, or as the type has them.
std::int64_t narrow_bytes(QuantType type, const CodeRange& range, std::int64_t elements);

// The numbers that files of a type have, whatever their values.
CodeRange codes_of(const StoredType& type);

}  // namespace foresay::kernels
