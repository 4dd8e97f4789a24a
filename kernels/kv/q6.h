// kernels/kv/q6.h: keys or values in 6 bits: kernels/kv/low_bits.h has the codes. Their low four bits lie two to a
// byte, their high two bits four to a byte.
#pragma once

#include "kernels/kv_type.h"

namespace foresay::kernels {

struct KvQ6 {
    static constexpr KvType kType = KvType::q6;
    static constexpr const char* kName = "q6";
    static constexpr int kBits = 6;
};

}  // namespace foresay::kernels
