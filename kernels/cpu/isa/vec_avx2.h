// kernels/cpu/isa/vec_avx2.h: the vectors of kernels/cpu/isa/vec.h in AVX2, FMA and F16C: two registers each.
//
// Precision: fma() fuses multiply and add.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa/isa.h"

namespace foresay::kernels::cpu::FORESAY_ISA {

struct F {
    __m256 lo, hi;
};
struct I {
    __m256i lo, hi;
};
struct B {
    __m256i lo, hi;
};
inline constexpr int kMaxTile = 4;

FORESAY_INLINE F load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
FORESAY_INLINE void store(float* p, F v) {
    _mm256_storeu_ps(p, v.lo);
    _mm256_storeu_ps(p + 8, v.hi);
}
FORESAY_INLINE F set(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
FORESAY_INLINE F add(F a, F b) { return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)}; }
FORESAY_INLINE F sub(F a, F b) { return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)}; }
FORESAY_INLINE F mul(F a, F b) { return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)}; }
FORESAY_INLINE F div(F a, F b) { return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)}; }
FORESAY_INLINE F fma(F a, F b, F c) { return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)}; }
FORESAY_INLINE F fnma(F a, F b, F c) {
    return {_mm256_fnmadd_ps(a.lo, b.lo, c.lo), _mm256_fnmadd_ps(a.hi, b.hi, c.hi)};
}
FORESAY_INLINE F max(F a, F b) { return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)}; }
FORESAY_INLINE F min(F a, F b) { return {_mm256_min_ps(a.lo, b.lo), _mm256_min_ps(a.hi, b.hi)}; }
FORESAY_INLINE F abs(F a) {
    const __m256 mask = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    return {_mm256_and_ps(a.lo, mask), _mm256_and_ps(a.hi, mask)};
}
FORESAY_INLINE F round(F a) {
    return {_mm256_round_ps(a.lo, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC),
            _mm256_round_ps(a.hi, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
FORESAY_INLINE F to_float(I v) { return {_mm256_cvtepi32_ps(v.lo), _mm256_cvtepi32_ps(v.hi)}; }
FORESAY_INLINE I to_int(F v) { return {_mm256_cvtps_epi32(v.lo), _mm256_cvtps_epi32(v.hi)}; }
FORESAY_INLINE I set_int(std::int32_t x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
FORESAY_INLINE I add_int(I a, I b) { return {_mm256_add_epi32(a.lo, b.lo), _mm256_add_epi32(a.hi, b.hi)}; }
FORESAY_INLINE I mul_int(I a, I b) { return {_mm256_mullo_epi32(a.lo, b.lo), _mm256_mullo_epi32(a.hi, b.hi)}; }
FORESAY_INLINE F exp2_int(I n) {
    const __m256i bias = _mm256_set1_epi32(127);
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.lo, bias), 23)),
            _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(n.hi, bias), 23))};
}
FORESAY_INLINE F zero_below(F x, F bound, F v) {
    return {_mm256_and_ps(_mm256_cmp_ps(x.lo, bound.lo, _CMP_GE_OQ), v.lo),
            _mm256_and_ps(_mm256_cmp_ps(x.hi, bound.hi, _CMP_GE_OQ), v.hi)};
}
FORESAY_INLINE F select_lanes(int begin, int end, F v, F other) {
    const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), high = _mm256_add_epi32(low, _mm256_set1_epi32(8));
    const __m256i from = _mm256_set1_epi32(begin - 1), to = _mm256_set1_epi32(end);
    const __m256i in_low = _mm256_and_si256(_mm256_cmpgt_epi32(low, from), _mm256_cmpgt_epi32(to, low));
    const __m256i in_high = _mm256_and_si256(_mm256_cmpgt_epi32(high, from), _mm256_cmpgt_epi32(to, high));
    return {_mm256_blendv_ps(other.lo, v.lo, _mm256_castsi256_ps(in_low)),
            _mm256_blendv_ps(other.hi, v.hi, _mm256_castsi256_ps(in_high))};
}
FORESAY_INLINE __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
FORESAY_INLINE F load_half(const void* p) {
    return {_mm256_cvtph_ps(load16(p)), _mm256_cvtph_ps(load16(static_cast<const char*>(p) + 16))};
}
FORESAY_INLINE void store_half(std::uint16_t* p, F v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v.lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8), _mm256_cvtps_ph(v.hi, _MM_FROUND_TO_NEAREST_INT));
}
FORESAY_INLINE F load_bf16(const void* p) {
    const auto widen = [](__m128i v) { return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(v), 16)); };
    return {widen(load16(p)), widen(load16(static_cast<const char*>(p) + 16))};
}
FORESAY_INLINE I load_u8(const std::uint8_t* p) {
    const __m128i v = load16(p);
    return {_mm256_cvtepu8_epi32(v), _mm256_cvtepu8_epi32(_mm_srli_si128(v, 8))};
}
FORESAY_INLINE I load_i8(const std::int8_t* p) {
    const __m128i v = load16(p);
    return {_mm256_cvtepi8_epi32(v), _mm256_cvtepi8_epi32(_mm_srli_si128(v, 8))};
}
FORESAY_INLINE void store_i8(std::int8_t* p, I v) {
    const __m256i words = _mm256_permute4x64_epi64(_mm256_packs_epi32(v.lo, v.hi), 0xd8);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
}
template <int N>
FORESAY_INLINE I shift_right(I v) {
    return {_mm256_srli_epi32(v.lo, N), _mm256_srli_epi32(v.hi, N)};
}
template <int N>
FORESAY_INLINE I shift_left(I v) {
    return {_mm256_slli_epi32(v.lo, N), _mm256_slli_epi32(v.hi, N)};
}
FORESAY_INLINE I and_int(I a, std::int32_t mask) {
    const __m256i m = _mm256_set1_epi32(mask);
    return {_mm256_and_si256(a.lo, m), _mm256_and_si256(a.hi, m)};
}
FORESAY_INLINE I or_int(I a, I b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }

FORESAY_INLINE B load_bytes(const std::uint8_t* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)),
            _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + 32))};
}
FORESAY_INLINE B and_bytes(B v, std::uint8_t mask) {
    const __m256i m = _mm256_set1_epi8(static_cast<char>(mask));
    return {_mm256_and_si256(v.lo, m), _mm256_and_si256(v.hi, m)};
}
FORESAY_INLINE B or_bytes(B a, B b) { return {_mm256_or_si256(a.lo, b.lo), _mm256_or_si256(a.hi, b.hi)}; }
template <int N>
FORESAY_INLINE B shift_bytes(B v) {
    if constexpr (N > 0) return {_mm256_srli_epi16(v.lo, N), _mm256_srli_epi16(v.hi, N)};
    if constexpr (N < 0) return {_mm256_slli_epi16(v.lo, -N), _mm256_slli_epi16(v.hi, -N)};
    return v;
}
// Floats of eight bits (sign, four of exponent with a bias of 7, three), of 16 outputs and two neighbouring inputs,
// divided by 256; none may be NaN. By way of float16, whose subnormal numbers cost nothing to convert; those of float32
// would.
FORESAY_INLINE void load_e4m3(const std::uint8_t* p, F& first, F& second) {
    const auto one = [](const std::uint8_t* from) -> F {
        const __m256i half = _mm256_and_si256(_mm256_slli_epi16(_mm256_cvtepi8_epi16(load16(from)), 7),
                                              _mm256_set1_epi16(static_cast<short>(0xbf80)));
        return {_mm256_cvtph_ps(_mm256_castsi256_si128(half)), _mm256_cvtph_ps(_mm256_extracti128_si256(half, 1))};
    };
    first = one(p);
    second = one(p + 16);
}
// table[v] for each byte, which must be below 16.
FORESAY_INLINE B look_up(B v, const std::uint8_t (&table)[16]) {
    const __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table)));
    return {_mm256_shuffle_epi8(t, v.lo), _mm256_shuffle_epi8(t, v.hi)};
}
FORESAY_INLINE std::int32_t dword(const std::int8_t* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return v;
}
// Pairs sum to at most 2 * 63 * 127, which fits 16 bits.
FORESAY_INLINE __m256i dot_half(__m256i acc, __m256i codes, __m256i x) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)));
}
FORESAY_INLINE I dot(I acc, B codes, const std::int8_t* x) {
    const __m256i v = _mm256_set1_epi32(dword(x));
    return {dot_half(acc.lo, codes.lo, v), dot_half(acc.hi, codes.hi, v)};
}
// |code - 128| times x with the sign of (code - 128): pairs sum to at most 2 * 128 * 127 in magnitude.
FORESAY_INLINE __m256i dot_signed_half(__m256i acc, __m256i codes, __m256i x) {
    const __m256i w = _mm256_xor_si256(codes, _mm256_set1_epi8(static_cast<char>(0x80)));
    return dot_half(acc, _mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
}
FORESAY_INLINE I dot_wide(I acc, B codes, const std::int8_t* x) {
    const __m256i v = _mm256_set1_epi32(dword(x));
    return {dot_signed_half(acc.lo, codes.lo, v), dot_signed_half(acc.hi, codes.hi, v)};
}
FORESAY_INLINE std::int32_t wide_seed(std::int32_t) { return 0; }

FORESAY_INLINE float sum_lanes(F v) {
    const __m256 h = _mm256_add_ps(v.lo, v.hi);
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
FORESAY_INLINE float max_lanes(F v) {
    const __m256 h = _mm256_max_ps(v.lo, v.hi);
    const __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 d = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(d, _mm_movehdup_ps(d)));
}
FORESAY_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
FORESAY_INLINE void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

}  // namespace foresay::kernels::cpu::FORESAY_ISA
