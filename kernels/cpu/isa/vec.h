// kernels/cpu/isa/vec.h: the vector types of this folder's kernels: 16 floats, 16 int32 or 64 bytes, in the registers
// of the instruction set. Only the files of this folder include it.
//
// Layout:   F is 16 floats, I 16 int32, B 64 bytes. All functions but those below work lane by lane and do what their
//           name says. Loads and stores need no alignment. kMaxTile: the most rows for which the set has registers.
//             fma(a, b, c)              a b + c              fnma(a, b, c)   c - a b
//             round(F), to_int(F)       to the nearest integer, ties to even
//             exp2_int(n)               2^n for integers n in [-126, 127]
//             zero_below(x, bound, v)   v where x >= bound, 0 elsewhere
//             select_lanes(b, e, v, w)  lanes [b, e) of v, w elsewhere
//             shift_bytes<N>(B)         right by N, left where N < 0. Bits may cross into the neighbouring byte: a mask
//                                       must follow
//             dot(acc, codes, x)        lane i += sum of products of codes 4 i .. 4 i + 3 (unsigned, below 64) and the
//                                       four signed bytes at x
//             dot_wide(acc, codes, x)   the same with codes up to 255 that stand for code - 128; start acc from
//                                       wide_seed(-128 times the sum of all x)
//             sum_lanes, max_lanes      across the lanes, in the same order for every set
//             sum_halves(q, a, b)       of 64 codes: a[0], b[0], a[1], b[1] are the sums of 16 codes each, in order
// Precision: avx512 and avx2 fuse multiply and add exactly where fma() is written; portable rounds twice there.
#pragma once

#if defined(FORESAY_ISA_AVX512)
#include "kernels/cpu/isa/vec_avx512.h"
#elif defined(FORESAY_ISA_AVX2)
#include "kernels/cpu/isa/vec_avx2.h"
#else
#include "kernels/cpu/isa/vec_portable.h"
#endif

namespace foresay::kernels::cpu::FORESAY_ISA {

#if !defined(FORESAY_ISA_AVX512)
FORESAY_INLINE float sum_16(const std::int8_t* q) {
    std::int32_t sum = 0;
    for (int i = 0; i < 16; ++i) sum += q[i];
    return static_cast<float>(sum);
}
FORESAY_INLINE void sum_halves(const std::int8_t* q, float* first, float* second) {
    for (int i = 0; i < 2; ++i) {
        first[i] = sum_16(q + 32 * i);
        second[i] = sum_16(q + 32 * i + 16);
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

FORESAY_INLINE F silu(F v) { return div(v, add(set(1.0f), exp(sub(set(0.0f), v)))); }
FORESAY_INLINE F gelu_tanh(F v) {
    const F cubic = mul(v, fma(mul(v, v), set(0.044715f), set(1.0f)));
    return mul(mul(v, set(0.5f)), add(set(1.0f), tanh(mul(cubic, set(0.7978845608f)))));
}

}  // namespace foresay::kernels::cpu::FORESAY_ISA
