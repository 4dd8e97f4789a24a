// kernels/cpu/isa/vec_portable.h: the vectors of kernels/cpu/isa/vec.h as arrays, for any processor.
//
// Precision: fma() rounds twice.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/isa/isa.h"

namespace foresay::kernels::cpu::FORESAY_ISA {

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
FORESAY_INLINE I load_i8(const std::int8_t* p) {
    return each<I>([&](int i) { return static_cast<std::int32_t>(p[i]); });
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
// Floats of eight bits (sign, four of exponent with a bias of 7, three), of 16 outputs and two neighbouring inputs,
// divided by 256; none may be NaN. By way of float16, whose subnormal numbers cost nothing to convert; those of float32
// would.
FORESAY_INLINE void load_e4m3(const std::uint8_t* p, F& first, F& second) {
    const auto one = [](const std::uint8_t* from) {
        return each<F>([&](int i) {
            return half_to_float(static_cast<std::uint16_t>((from[i] & 0x7f) << 7 | (from[i] & 0x80) << 8));
        });
    };
    first = one(p);
    second = one(p + 16);
}
// table[v] for each byte, which must be below 16.
FORESAY_INLINE B look_up(B v, const std::uint8_t (&table)[16]) {
    for (auto& x : v.v) x = table[x];
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

}  // namespace foresay::kernels::cpu::FORESAY_ISA
