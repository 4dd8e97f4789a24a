// kernels/kv/q4.h: keys or values in 4 bits: kernels/kv/low_bits.h has the codes, two to a byte.
#pragma once

#include "kernels/kv_type.h"

namespace foresay::kernels {

struct KvQ4 {
    static constexpr KvType kType = KvType::q4;
    static constexpr const char* kName = "q4";
    static constexpr int kBits = 4;
};

}  // namespace foresay::kernels
