// tests/cuda_linear/emulated/kernels/cuda/decode/flagged_words.cuh: loads of words that are there, or come late.
#pragma once

#include "tests/cuda_linear/emulated/emulation.h"

namespace foresay::kernels::cuda {

inline constexpr std::uint32_t kNotReady = 0xffffffffu;
inline std::uint32_t largest_word(std::uint32_t so_far, const float4& v) {
    return std::max({so_far, __float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)});
}
inline bool not_ready(const float4& v) { return largest_word(0, v) == kNotReady; }
// Words are written while this many loads are made, four neighbours together, in an order that is none.
inline unsigned words_late = 0, words_asked_for = 0;
inline bool is_there(const void* word) {
    const auto number = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(word) / 16);
    return ++words_asked_for > (number * 2654435761u >> 8) % (words_late + 1);
}
inline float load_flagged(const float* from) { return is_there(from) ? *from : __uint_as_float(kNotReady); }
inline float4 load_flagged4(const void* from) {
    const float none = __uint_as_float(kNotReady);
    return is_there(from) ? *static_cast<const float4*>(from) : float4{none, none, none, none};
}
inline void load_flagged4_if(float4& value, bool wanted, const void* from) {
    if (wanted) value = load_flagged4(from);
}

}  // namespace foresay::kernels::cuda
