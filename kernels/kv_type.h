// kernels/kv_type.h: how keys, or values, may be stored in the KV cache. kernels/kv has what each type is.
#pragma once

#include <cstdint>

namespace foresay::kernels {

// A float16 each, or codes of so many bits with one scale for each vector of an attention head. In the order of
// AllKvTypes (kernels/kv/list.h); f16 and q8 have the numbers of KvFormat.
enum class KvType : std::uint8_t { f16, q8, q6, q4 };

}  // namespace foresay::kernels
