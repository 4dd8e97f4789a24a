// tests/cuda_linear/emulated/kernels/cuda/decode/flagged_words.cuh: loads of words that are there, or come late.
#pragma once

#include "tests/cuda_linear/emulated/emulation.h"

namespace foresay::kernels::cuda {

inline constexpr std::uint32_t kNotReady = 0xffffffffu;
inline std::uint32_t largest_word(std::uint32_t so_far, const float4& v) {
    return std::max({so_far, __float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z), __float_as_uint(v.w)});
}
inline bool not_ready(const float4& v) { return largest_word(0, v) == kNotReady; }
// Words come one by one, each after another number of words asked for, at most words_late, in no particular order.
inline unsigned words_late = 0, words_asked_for = 0;
inline float load_flagged(const float* from) {
    const auto number = static_cast<unsigned>(reinterpret_cast<std::uintptr_t>(from) / sizeof(float));
    const bool is_there = ++words_asked_for > (number * 2654435761u >> 8) % (words_late + 1);
    return is_there ? *from : __uint_as_float(kNotReady);
}
inline float4 load_flagged4(const void* from) {
    const auto* const words = static_cast<const float*>(from);
    return {load_flagged(words), load_flagged(words + 1), load_flagged(words + 2), load_flagged(words + 3)};
}
inline void load_flagged4_if(float4& value, bool wanted, const void* from) {
    if (wanted) value = load_flagged4(from);
}

}  // namespace foresay::kernels::cuda
