// kernels/cpu/isa/vec_avx512.h: the vectors of kernels/cpu/isa/vec.h in AVX-512 (F, BW, DQ, VL and VNNI): one register
// each.
//
// Precision: fma() fuses multiply and add.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa/isa.h"

namespace foresay::kernels::cpu::FORESAY_ISA {

using F = __m512;   // 16 floats
using I = __m512i;  // 16 int32
using B = __m512i;  // 64 bytes
inline constexpr int kMaxTile = 16;

FORESAY_INLINE F load(const float* p) { return _mm512_loadu_ps(p); }
FORESAY_INLINE void store(float* p, F v) { _mm512_storeu_ps(p, v); }
FORESAY_INLINE F set(float x) { return _mm512_set1_ps(x); }
FORESAY_INLINE F add(F a, F b) { return _mm512_add_ps(a, b); }
FORESAY_INLINE F sub(F a, F b) { return _mm512_sub_ps(a, b); }
FORESAY_INLINE F mul(F a, F b) { return _mm512_mul_ps(a, b); }
FORESAY_INLINE F div(F a, F b) { return _mm512_div_ps(a, b); }
FORESAY_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }
FORESAY_INLINE F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }
FORESAY_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
FORESAY_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
FORESAY_INLINE F abs(F a) { return _mm512_abs_ps(a); }
FORESAY_INLINE F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
FORESAY_INLINE F to_float(I v) { return _mm512_cvtepi32_ps(v); }
FORESAY_INLINE I to_int(F v) { return _mm512_cvtps_epi32(v); }
FORESAY_INLINE I set_int(std::int32_t x) { return _mm512_set1_epi32(x); }
FORESAY_INLINE I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
FORESAY_INLINE I mul_int(I a, I b) { return _mm512_mullo_epi32(a, b); }
FORESAY_INLINE F exp2_int(I n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
FORESAY_INLINE F zero_below(F x, F bound, F v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ), v);
}
FORESAY_INLINE F select_lanes(int begin, int end, F v, F other) {
    const unsigned mask = ((1u << end) - 1) & ~((1u << begin) - 1);
    return _mm512_mask_mov_ps(other, static_cast<__mmask16>(mask), v);
}
FORESAY_INLINE F load_half(const void* p) {
    return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i*>(p)));
}
FORESAY_INLINE void store_half(std::uint16_t* p, F v) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                        _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}
FORESAY_INLINE F load_bf16(const void* p) {
    return _mm512_castsi512_ps(
        _mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i*>(p))), 16));
}
FORESAY_INLINE I load_u8(const std::uint8_t* p) {
    return _mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
FORESAY_INLINE I load_i8(const std::int8_t* p) {
    return _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}
FORESAY_INLINE void store_i8(std::int8_t* p, I v) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(v));
}
template <int N>
FORESAY_INLINE I shift_right(I v) {
    return _mm512_srli_epi32(v, N);
}
template <int N>
FORESAY_INLINE I shift_left(I v) {
    return _mm512_slli_epi32(v, N);
}
FORESAY_INLINE I and_int(I a, std::int32_t mask) { return _mm512_and_si512(a, _mm512_set1_epi32(mask)); }
FORESAY_INLINE I or_int(I a, I b) { return _mm512_or_si512(a, b); }

FORESAY_INLINE B load_bytes(const std::uint8_t* p) { return _mm512_loadu_si512(p); }
FORESAY_INLINE B and_bytes(B v, std::uint8_t mask) {
    return _mm512_and_si512(v, _mm512_set1_epi8(static_cast<char>(mask)));
}
FORESAY_INLINE B or_bytes(B a, B b) { return _mm512_or_si512(a, b); }
template <int N>
FORESAY_INLINE B shift_bytes(B v) {
    if constexpr (N > 0) return _mm512_srli_epi16(v, N);
    if constexpr (N < 0) return _mm512_slli_epi16(v, -N);
    return v;
}
// Floats of eight bits (sign, four of exponent with a bias of 7, three), of 16 outputs and two neighbouring inputs,
// divided by 256; none may be NaN. By way of float16, whose subnormal numbers cost nothing to convert; those of float32
// would.
FORESAY_INLINE void load_e4m3(const std::uint8_t* p, F& first, F& second) {
    const __m512i wide = _mm512_cvtepi8_epi16(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    const __m512i half = _mm512_and_si512(_mm512_slli_epi16(wide, 7), _mm512_set1_epi16(static_cast<short>(0xbf80)));
    first = _mm512_cvtph_ps(_mm512_castsi512_si256(half));
    second = _mm512_cvtph_ps(_mm512_extracti64x4_epi64(half, 1));
}
// table[v] for each byte, which must be below 16.
FORESAY_INLINE B look_up(B v, const std::uint8_t (&table)[16]) {
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), v);
}
FORESAY_INLINE std::int32_t dword(const std::int8_t* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return v;
}
FORESAY_INLINE I dot(I acc, B codes, const std::int8_t* x) {
    return _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(dword(x)));
}
FORESAY_INLINE I dot_wide(I acc, B codes, const std::int8_t* x) { return dot(acc, codes, x); }
FORESAY_INLINE std::int32_t wide_seed(std::int32_t minus128_sum) { return minus128_sum; }

FORESAY_INLINE float sum_lanes(F v) {
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    const __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    const __m128 d = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(d, _mm_movehdup_ps(d)));
}
FORESAY_INLINE float max_lanes(F v) { return _mm512_reduce_max_ps(v); }
FORESAY_INLINE void prefetch(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T0); }
FORESAY_INLINE void prefetch_l2(const void* p) { _mm_prefetch(static_cast<const char*>(p), _MM_HINT_T1); }

FORESAY_INLINE void sum_halves(const std::int8_t* q, float* first, float* second) {
    I v = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_loadu_si512(q));
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_BADC));
    float sums[4];
    _mm_storeu_ps(sums, _mm_cvtepi32_ps(_mm512_castsi512_si128(_mm512_permutexvar_epi32(
                            _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), v))));
    first[0] = sums[0];
    second[0] = sums[1];
    first[1] = sums[2];
    second[1] = sums[3];
}

}  // namespace foresay::kernels::cpu::FORESAY_ISA
