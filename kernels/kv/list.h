// kernels/kv/list.h: the types of keys and values, as structs and as a table.
//
// A type of 4 or 6 bits has codes as kernels/kv/low_bits.h describes them: four low bits in one plane, the rest (2
// bits) in another. Another layout needs its own loads in kernels/cpu/isa/attend.cpp and kernels/cuda/attention.
#pragma once

#include "kernels/kv/f16.h"
#include "kernels/kv/q4.h"
#include "kernels/kv/q6.h"
#include "kernels/kv/q8.h"

namespace foresay::kernels {

// In the order of KvType.
template <class... Types>
struct KvTypeList {
    static constexpr int kBits[] = {Types::kBits...};
    static constexpr const char* kNames[] = {Types::kName...};
    static constexpr int kCount = sizeof...(Types);
    static constexpr bool in_order() {
        unsigned next = 0;
        return ((static_cast<unsigned>(Types::kType) == next++) && ...);
    }
};
using AllKvTypes = KvTypeList<KvF16, KvQ8, KvQ6, KvQ4>;
static_assert(AllKvTypes::in_order());

// Bits of a value, scales aside.
constexpr int kv_bits(KvType type) { return AllKvTypes::kBits[static_cast<int>(type)]; }
// Whether vectors are rotated before they are rounded.
constexpr bool is_rotated(KvType type) { return kv_bits(type) < 8; }

}  // namespace foresay::kernels
