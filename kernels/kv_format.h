// kernels/kv_format.h: the formats of the KV cache: the types of its keys and of its values.
#pragma once

#include "kernels/kv_type.h"
#include "kernels/ops.h"

namespace foresay::kernels {

// The format with these types of keys and values. Both are f16, or neither is.
constexpr KvFormat kv_format(KvType k, KvType v) {
    if (k == v && k == KvType::f16) return KvFormat::f16;
    if (k == v && k == KvType::q8) return KvFormat::q8;
    return static_cast<KvFormat>(16 * (static_cast<unsigned>(k) + 1) + static_cast<unsigned>(v));
}
constexpr KvType key_type(KvFormat format) {
    const auto number = static_cast<unsigned>(format);
    return static_cast<KvType>(number < 16 ? number : number / 16 - 1);
}
constexpr KvType value_type(KvFormat format) {
    const auto number = static_cast<unsigned>(format);
    return static_cast<KvType>(number < 16 ? number : number % 16);
}
static_assert(key_type(KvFormat::q8) == KvType::q8 && value_type(KvFormat::q8) == KvType::q8);

// Whether keys or values have fewer than 8 bits.
constexpr bool has_low_bits(KvFormat format) { return format != KvFormat::f16 && format != KvFormat::q8; }

}  // namespace foresay::kernels
