// kernels/kv/f16.h: keys or values as float16.
#pragma once

#include "kernels/kv_type.h"

namespace foresay::kernels {

struct KvF16 {
    static constexpr KvType kType = KvType::f16;
    static constexpr const char* kName = "f16";
    static constexpr int kBits = 16;
};

}  // namespace foresay::kernels
