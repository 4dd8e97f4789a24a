// kernels/kv/q8.h: keys or values in 8 bits: kernels/kv_code.h has the codes, one to a byte.
#pragma once

#include "kernels/kv_type.h"

namespace foresay::kernels {

struct KvQ8 {
    static constexpr KvType kType = KvType::q8;
    static constexpr const char* kName = "q8";
    static constexpr int kBits = 8;
};

}  // namespace foresay::kernels
