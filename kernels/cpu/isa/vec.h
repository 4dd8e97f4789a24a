// kernels/cpu/isa/vec.h: sixteen lanes of float or int32 and 64 bytes of codes, in whatever registers the instruction set
// has. Included by the files of this folder only, which are compiled once per set with FORESAY_ISA_<SET> defined; the
// macro names the namespace, so that no function compiled for one set can be taken for another by the linker.
//
// Precision: avx512 and avx2 fuse multiply and add exactly where fma() is written; portable rounds twice there.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(FORESAY_ISA_AVX512)
#define FORESAY_ISA avx512
#include <immintrin.h>
#elif defined(FORESAY_ISA_AVX2)
#define FORESAY_ISA avx2
#include <immintrin.h>
#else
#define FORESAY_ISA portable
#include <cmath>
#endif

namespace foresay::kernels::cpu::FORESAY_ISA {

#define FORESAY_INLINE static inline __attribute__((always_inline))

#if defined(FORESAY_ISA_AVX512)

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
FORESAY_INLINE F fma(F a, F b, F c) { return _mm512_fmadd_ps(a, b, c); }    // a b + c
FORESAY_INLINE F fnma(F a, F b, F c) { return _mm512_fnmadd_ps(a, b, c); }  // c - a b
FORESAY_INLINE F max(F a, F b) { return _mm512_max_ps(a, b); }
FORESAY_INLINE F min(F a, F b) { return _mm512_min_ps(a, b); }
FORESAY_INLINE F abs(F a) { return _mm512_abs_ps(a); }
FORESAY_INLINE F round(F a) { return _mm512_roundscale_ps(a, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC); }
FORESAY_INLINE F to_float(I v) { return _mm512_cvtepi32_ps(v); }
FORESAY_INLINE I to_int(F v) { return _mm512_cvtps_epi32(v); }  // nearest, ties to even
FORESAY_INLINE I set_int(std::int32_t x) { return _mm512_set1_epi32(x); }
FORESAY_INLINE I add_int(I a, I b) { return _mm512_add_epi32(a, b); }
FORESAY_INLINE I mul_int(I a, I b) { return _mm512_mullo_epi32(a, b); }
// 2^n for integers n in [-126, 127]
FORESAY_INLINE F exp2_int(I n) {
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_add_epi32(n, _mm512_set1_epi32(127)), 23));
}
// keep ? a : 0 where a < bound lanes are dropped: x >= bound ? v : 0
FORESAY_INLINE F zero_below(F x, F bound, F v) {
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, bound, _CMP_GE_OQ), v);
}
// lanes [begin, end) of v, `other` elsewhere
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
FORESAY_INLINE I load_i8(const std::uint8_t* p) {
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
// Shifts 16-bit lanes: bits cross bytes, so a mask must follow. N < 0 shifts left.
template <int N>
FORESAY_INLINE B shift_bytes(B v) {
    if constexpr (N > 0) return _mm512_srli_epi16(v, N);
    if constexpr (N < 0) return _mm512_slli_epi16(v, -N);
    return v;
}
FORESAY_INLINE std::int32_t dword(const std::int8_t* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return v;
}
// acc[lane] += sum of 4 products of unsigned codes (below 64) and the signed bytes at x
FORESAY_INLINE I dot(I acc, B codes, const std::int8_t* x) {
    return _mm512_dpbusd_epi32(acc, codes, _mm512_set1_epi32(dword(x)));
}
// The same for codes up to 255 that stand for code - 128; the caller seeds acc with wide_seed().
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

// The sums of the runs of 16 among 64 codes: first[0], second[0], first[1], second[1] in order.
FORESAY_INLINE void sum_runs(const std::int8_t* q, float* first, float* second) {
    I v = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), _mm512_loadu_si512(q));
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_CDAB));
    v = _mm512_add_epi32(v, _mm512_shuffle_epi32(v, _MM_PERM_BADC));
    float runs[4];
    _mm_storeu_ps(runs, _mm_cvtepi32_ps(_mm512_castsi512_si128(_mm512_permutexvar_epi32(
                            _mm512_setr_epi32(0, 4, 8, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), v))));
    first[0] = runs[0];
    second[0] = runs[1];
    first[1] = runs[2];
    second[1] = runs[3];
}

#elif defined(FORESAY_ISA_AVX2)

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
FORESAY_INLINE I load_i8(const std::uint8_t* p) {
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
FORESAY_INLINE std::int32_t dword(const std::int8_t* p) {
    std::int32_t v;
    std::memcpy(&v, p, 4);
    return v;
}
// Pairs sum to at most 2 * 63 * 127, which 16 bits hold.
FORESAY_INLINE __m256i dot_half(__m256i acc, __m256i codes, __m256i x) {
    return _mm256_add_epi32(acc, _mm256_madd_epi16(_mm256_maddubs_epi16(codes, x), _mm256_set1_epi16(1)));
}
FORESAY_INLINE I dot(I acc, B codes, const std::int8_t* x) {
    const __m256i v = _mm256_set1_epi32(dword(x));
    return {dot_half(acc.lo, codes.lo, v), dot_half(acc.hi, codes.hi, v)};
}
// |code - 128| times x with the sign moved over: pairs sum to at most 2 * 128 * 127 in magnitude.
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

#else  // portable

struct F {
    float v[16];
};
struct I {
    std::int32_t v[16];
};
struct B {
    std::uint8_t v[64];
};
inline constexpr int kMaxTile = 4;

template <class Out, class Fn>
FORESAY_INLINE Out each(Fn fn) {
    Out out;
    for (int i = 0; i < 16; ++i) out.v[i] = fn(i);
    return out;
}
FORESAY_INLINE F load(const float* p) {
    F v;
    std::memcpy(v.v, p, sizeof v.v);
    return v;
}
FORESAY_INLINE void store(float* p, F v) { std::memcpy(p, v.v, sizeof v.v); }
FORESAY_INLINE F set(float x) {
    return each<F>([&](int) { return x; });
}
FORESAY_INLINE F add(F a, F b) {
    return each<F>([&](int i) { return a.v[i] + b.v[i]; });
}
FORESAY_INLINE F sub(F a, F b) {
    return each<F>([&](int i) { return a.v[i] - b.v[i]; });
}
FORESAY_INLINE F mul(F a, F b) {
    return each<F>([&](int i) { return a.v[i] * b.v[i]; });
}
FORESAY_INLINE F div(F a, F b) {
    return each<F>([&](int i) { return a.v[i] / b.v[i]; });
}
FORESAY_INLINE F fma(F a, F b, F c) {
    return each<F>([&](int i) { return a.v[i] * b.v[i] + c.v[i]; });
}
FORESAY_INLINE F fnma(F a, F b, F c) {
    return each<F>([&](int i) { return c.v[i] - a.v[i] * b.v[i]; });
}
FORESAY_INLINE F max(F a, F b) {
    return each<F>([&](int i) { return a.v[i] > b.v[i] ? a.v[i] : b.v[i]; });
}
FORESAY_INLINE F min(F a, F b) {
    return each<F>([&](int i) { return a.v[i] < b.v[i] ? a.v[i] : b.v[i]; });
}
FORESAY_INLINE F abs(F a) {
    return each<F>([&](int i) { return a.v[i] < 0 ? -a.v[i] : a.v[i]; });
}
FORESAY_INLINE F round(F a) {
    return each<F>([&](int i) { return __builtin_nearbyintf(a.v[i]); });
}
FORESAY_INLINE F to_float(I v) {
    return each<F>([&](int i) { return static_cast<float>(v.v[i]); });
}
FORESAY_INLINE I to_int(F v) {
    return each<I>([&](int i) { return static_cast<std::int32_t>(__builtin_nearbyintf(v.v[i])); });
}
FORESAY_INLINE I set_int(std::int32_t x) {
    return each<I>([&](int) { return x; });
}
FORESAY_INLINE I add_int(I a, I b) {
    return each<I>([&](int i) { return a.v[i] + b.v[i]; });
}
FORESAY_INLINE I mul_int(I a, I b) {
    return each<I>([&](int i) { return a.v[i] * b.v[i]; });
}
FORESAY_INLINE float bits_to_float(std::uint32_t bits) {
    float f;
    std::memcpy(&f, &bits, 4);
    return f;
}
FORESAY_INLINE std::uint32_t float_to_bits(float f) {
    std::uint32_t bits;
    std::memcpy(&bits, &f, 4);
    return bits;
}
FORESAY_INLINE F exp2_int(I n) {
    return each<F>([&](int i) { return bits_to_float(static_cast<std::uint32_t>(n.v[i] + 127) << 23); });
}
FORESAY_INLINE F zero_below(F x, F bound, F v) {
    return each<F>([&](int i) { return x.v[i] >= bound.v[i] ? v.v[i] : 0.0f; });
}
FORESAY_INLINE F select_lanes(int begin, int end, F v, F other) {
    return each<F>([&](int i) { return i >= begin && i < end ? v.v[i] : other.v[i]; });
}
FORESAY_INLINE float half_to_float(std::uint16_t h) {
    const std::uint32_t sign = static_cast<std::uint32_t>(h >> 15) << 31, exponent = h >> 10 & 31, mantissa = h & 1023;
    if (exponent == 31) return bits_to_float(sign | 0x7f800000u | mantissa << 13);
    if (exponent == 0) {  // zero or denormal: mantissa * 2^-24
        const float value = static_cast<float>(mantissa) * 5.9604644775390625e-8f;
        return sign ? -value : value;
    }
    return bits_to_float(sign | (exponent + 112) << 23 | mantissa << 13);
}
FORESAY_INLINE std::uint16_t float_to_half(float f) {
    const std::uint32_t bits = float_to_bits(f), sign = bits >> 16 & 0x8000, magnitude = bits & 0x7fffffff;
    if (magnitude > 0x7f800000u) return static_cast<std::uint16_t>(sign | 0x7e00);
    if (magnitude >= 0x477ff000u) return static_cast<std::uint16_t>(sign | 0x7c00);
    if (magnitude < 0x38800000u) {  // denormal half: round mantissa * 2^-24 to nearest even
        const float scaled = bits_to_float(magnitude) * 16777216.0f;
        return static_cast<std::uint16_t>(sign | static_cast<std::uint32_t>(__builtin_nearbyintf(scaled)));
    }
    const std::uint32_t rounded = magnitude + 0xfff + (magnitude >> 13 & 1);
    return static_cast<std::uint16_t>(sign | ((rounded - 0x38000000u) >> 13));
}
FORESAY_INLINE std::uint16_t word(const void* p, int i) {
    std::uint16_t v;
    std::memcpy(&v, static_cast<const char*>(p) + 2 * i, 2);
    return v;
}
FORESAY_INLINE F load_half(const void* p) {
    return each<F>([&](int i) { return half_to_float(word(p, i)); });
}
FORESAY_INLINE void store_half(std::uint16_t* p, F v) {
    for (int i = 0; i < 16; ++i) p[i] = float_to_half(v.v[i]);
}
FORESAY_INLINE F load_bf16(const void* p) {
    return each<F>([&](int i) { return bits_to_float(static_cast<std::uint32_t>(word(p, i)) << 16); });
}
FORESAY_INLINE I load_u8(const std::uint8_t* p) {
    return each<I>([&](int i) { return static_cast<std::int32_t>(p[i]); });
}
FORESAY_INLINE I load_i8(const std::uint8_t* p) {
    return each<I>([&](int i) { return static_cast<std::int32_t>(static_cast<std::int8_t>(p[i])); });
}
FORESAY_INLINE void store_i8(std::int8_t* p, I v) {
    for (int i = 0; i < 16; ++i) p[i] = static_cast<std::int8_t>(v.v[i]);
}
template <int N>
FORESAY_INLINE I shift_right(I v) {
    return each<I>([&](int i) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(v.v[i]) >> N); });
}
template <int N>
FORESAY_INLINE I shift_left(I v) {
    return each<I>([&](int i) { return static_cast<std::int32_t>(static_cast<std::uint32_t>(v.v[i]) << N); });
}
FORESAY_INLINE I and_int(I a, std::int32_t mask) {
    return each<I>([&](int i) { return a.v[i] & mask; });
}
FORESAY_INLINE I or_int(I a, I b) {
    return each<I>([&](int i) { return a.v[i] | b.v[i]; });
}

FORESAY_INLINE B load_bytes(const std::uint8_t* p) {
    B b;
    std::memcpy(b.v, p, 64);
    return b;
}
FORESAY_INLINE B and_bytes(B v, std::uint8_t mask) {
    for (auto& x : v.v) x &= mask;
    return v;
}
FORESAY_INLINE B or_bytes(B a, B b) {
    for (int i = 0; i < 64; ++i) a.v[i] |= b.v[i];
    return a;
}
template <int N>
FORESAY_INLINE B shift_bytes(B v) {  // bytes, not words: the mask that follows makes them equal
    for (auto& x : v.v) x = static_cast<std::uint8_t>(N > 0 ? x >> (N > 0 ? N : 0) : x << (N < 0 ? -N : 0));
    return v;
}
FORESAY_INLINE I dot(I acc, B codes, const std::int8_t* x) {
    for (int lane = 0; lane < 16; ++lane) {
        for (int i = 0; i < 4; ++i) acc.v[lane] += static_cast<std::int32_t>(codes.v[4 * lane + i]) * x[i];
    }
    return acc;
}
FORESAY_INLINE I dot_wide(I acc, B codes, const std::int8_t* x) { return dot(acc, codes, x); }
FORESAY_INLINE std::int32_t wide_seed(std::int32_t minus128_sum) { return minus128_sum; }
FORESAY_INLINE float sum_lanes(F v) {
    float h[8], q[4];
    for (int i = 0; i < 8; ++i) h[i] = v.v[i] + v.v[i + 8];
    for (int i = 0; i < 4; ++i) q[i] = h[i] + h[i + 4];
    return (q[0] + q[2]) + (q[1] + q[3]);
}
FORESAY_INLINE float max_lanes(F v) {
    float m = v.v[0];
    for (float x : v.v) m = x > m ? x : m;
    return m;
}
FORESAY_INLINE void prefetch(const void* p) { __builtin_prefetch(p); }
FORESAY_INLINE void prefetch_l2(const void* p) { __builtin_prefetch(p, 0, 2); }

#endif

#if !defined(FORESAY_ISA_AVX512)
// The sums of the runs of 16 among 64 codes: first[0], second[0], first[1], second[1] in order.
FORESAY_INLINE float sum_run(const std::int8_t* q) {
    std::int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += q[i];
    return static_cast<float>(sum);
}
FORESAY_INLINE void sum_runs(const std::int8_t* q, float* first, float* second) {
    for (int i = 0; i < 2; ++i) {
        first[i] = sum_run(q + 32 * i);
        second[i] = sum_run(q + 32 * i + 16);
    }
}
#endif

// e^x to about 2 ulp; below -87.3 it is 0, above 88 it is clamped. Cody-Waite reduction, Taylor polynomial of degree 6.
FORESAY_INLINE F exp(F x) {
    const F clamped = min(max(x, set(-87.3f)), set(88.0f));
    const F n = round(mul(clamped, set(1.44269504088896341f)));
    F r = fnma(n, set(0.693359375f), clamped);
    r = fnma(n, set(-2.12194440e-4f), r);
    F p = set(1.0f / 720);
    p = fma(p, r, set(1.0f / 120));
    p = fma(p, r, set(1.0f / 24));
    p = fma(p, r, set(1.0f / 6));
    p = fma(p, r, set(0.5f));
    p = fma(p, r, set(1.0f));
    p = fma(p, r, set(1.0f));
    return zero_below(x, set(-87.3f), mul(p, exp2_int(to_int(n))));
}

// tanh(x) = 1 - 2 / (e^2x + 1)
FORESAY_INLINE F tanh(F x) { return sub(set(1.0f), div(set(2.0f), add(exp(add(x, x)), set(1.0f)))); }

}  // namespace foresay::kernels::cpu::FORESAY_ISA
