// tests/cuda_linear/emulated/kernels/cuda/decode/flagged_words.cuh: loads of words that are always there.
#pragma once

#include "tests/cuda_linear/emulated/emulation.h"

namespace foresay::kernels::cuda {

inline constexpr std::uint32_t kNotReady = 0xffffffffu;
inline std::uint32_t largest_word(std::uint32_t so_far, const float4& v) {
    return std::max({so_far, __float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)});
}
inline bool not_ready(const float4& v) { return largest_word(0, v) == kNotReady; }
inline float load_flagged(const float* from) { return *from; }
inline float4 load_flagged4(const void* from) { return *static_cast<const float4*>(from); }
inline void load_flagged4_if(float4& value, bool wanted, const void* from) {
    if (wanted) value = load_flagged4(from);
}

}  // namespace foresay::kernels::cuda
