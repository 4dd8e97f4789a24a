// kernels/math.h: log and exp of our own, so that sampling gives the same token on every machine.
//
// Precision: float32; within 2 units in the last place of the true value over the whole range, denormals included
//           (tests/samplers/math_test.cpp measures it).
// Identity: built from add, multiply, explicit fma and integer operations only. Each is exact or correctly rounded by
//           IEEE 754, so host and device agree bit for bit and no instruction set matters. Needs -ffp-contract=off.
// Cost:     about 20 instructions. Where the compiler may not use fma instructions, std::fma is a library call; code
//           that evaluates many values is compiled per instruction set (kernels/sampling_simd.h).
// Source:   polynomial coefficients as in the Cephes library (S. Moshier), single precision.
#pragma once

#include <bit>
#include <cstdint>

#include "kernels/host_device.h"

namespace foresay::kernels::math {

// a * b + c with one rounding.
FORESAY_HOST_DEVICE inline float fma(float a, float b, float c) {
#if defined(__CUDA_ARCH__)
    return __fmaf_rn(a, b, c);
#else
    return __builtin_fmaf(a, b, c);
#endif
}

// The bits of a float, and back.
FORESAY_HOST_DEVICE inline std::uint32_t bits_of(float x) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(x);
#else
    return std::bit_cast<std::uint32_t>(x);
#endif
}
FORESAY_HOST_DEVICE inline float of_bits(std::uint32_t bits) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    return std::bit_cast<float>(bits);
#endif
}

// Zero bits above the highest one; x > 0.
FORESAY_HOST_DEVICE inline int leading_zeros(std::uint64_t x) {
#if defined(__CUDA_ARCH__)
    return __clzll(static_cast<long long>(x));
#else
    return std::countl_zero(x);
#endif
}

// log(1 + f) for f in [sqrt(1/2) - 1, sqrt(2) - 1], relative precision kept near 0; `e` * log(2) is added to it.
FORESAY_HOST_DEVICE inline float log_polynomial(float f, float e) {
    constexpr float kLn2High = 0.693359375f;
    constexpr float kLn2Low = -2.12194440e-4f;
    const float square = f * f;
    float p = 7.0376836292e-2f;
    p = fma(p, f, -1.1514610310e-1f);
    p = fma(p, f, 1.1676998740e-1f);
    p = fma(p, f, -1.2420140846e-1f);
    p = fma(p, f, 1.4249322787e-1f);
    p = fma(p, f, -1.6668057665e-1f);
    p = fma(p, f, 2.0000714765e-1f);
    p = fma(p, f, -2.4999993993e-1f);
    p = fma(p, f, 3.3333331174e-1f);
    float tail = p * f * square;
    tail = fma(e, kLn2Low, tail);
    tail = fma(-0.5f, square, tail);
    return fma(e, kLn2High, f + tail);
}

// Natural logarithm. log(0) = -inf, log(x < 0) = log(NaN) = NaN, log(+inf) = +inf.
FORESAY_HOST_DEVICE inline float log(float x) {
    const float infinity = of_bits(0x7f800000u);
    if (!(x > 0.0f)) return x == 0.0f ? -infinity : of_bits(0x7fc00000u);
    if (x == infinity) return x;
    float e = 0.0f;
    if (x < 1.17549435e-38f) {  // denormal: make it normal
        x *= 8388608.0f;
        e = -23.0f;
    }
    // Subtracting sqrt(1/2)'s bits makes the mantissa of what remains lie in [sqrt(1/2), sqrt(2)).
    const std::uint32_t shifted = bits_of(x) - 0x3f3504f3u;
    e += static_cast<float>(static_cast<std::int32_t>(shifted) >> 23);
    const float m = of_bits((shifted & 0x007fffffu) + 0x3f3504f3u);
    return log_polynomial(m - 1.0f, e);
}

// e to the power x. exp(-inf) = 0, overflow gives +inf, NaN stays NaN.
FORESAY_HOST_DEVICE inline float exp(float x) {
    if (!(x < 88.7228394f)) return x != x ? x : of_bits(0x7f800000u);
    if (x < -103.972084f) return 0.0f;
    // Adding and subtracting 1.5 * 2^23 rounds to the nearest integer.
    constexpr float kRound = 12582912.0f;
    const float n = fma(x, 1.44269504f, kRound) - kRound;
    float r = fma(n, -0.693359375f, x);
    r = fma(n, 2.12194440e-4f, r);
    float p = 1.9875691500e-4f;
    p = fma(p, r, 1.3981999507e-3f);
    p = fma(p, r, 8.3334519073e-3f);
    p = fma(p, r, 4.1665795894e-2f);
    p = fma(p, r, 1.6666665459e-1f);
    p = fma(p, r, 5.0000001201e-1f);
    p = fma(p * r, r, r) + 1.0f;
    // 2^n in two factors: n reaches 128 and -150, beyond the exponents of normal numbers.
    const std::int32_t whole = static_cast<std::int32_t>(n);
    const std::int32_t half = whole / 2;
    const float a = of_bits(static_cast<std::uint32_t>(half + 127) << 23);
    const float b = of_bits(static_cast<std::uint32_t>(whole - half + 127) << 23);
    return p * a * b;
}

// -log(1 - v) for v in (0, 1), relative precision kept near 0.
FORESAY_HOST_DEVICE inline float exponential(float v) {
    if (v < 0.29f) return -log_polynomial(-v, 0.0f);
    return -log(1.0f - v);
}

}  // namespace foresay::kernels::math
