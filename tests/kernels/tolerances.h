// tests/kernels/tolerances.h: how far a result may lie from its oracle, and why. The only place with such numbers.
//
//   row                  relative to                      reason
//   kSums                sum of |weight * input|          float32 sums of up to some hundred terms against double; one
//                                                         wrong scale of a sub-block moves a sum by 1e-3 of that at least
//   kNorm                the largest magnitude            float32 sum of squares, one division, one square root
//   kActivation          the product of magnitudes        exp by a polynomial of degree 6: 2 ulp
//   kAttention           the largest |v|                  scores in float32 become exponents: their error enters the
//                                                         weights as it is
//   stage, float         length of what the stage adds    the sums above; attention also rounds K and V to float16,
//                                                         whose step is 2^-11: about 3e-4 after averaging
//   stage, codes in cache  as above                      K and V differ by rounding before they become codes: here and
//                                                         there a code is one apart
//   stage, quantised     length of what the stage adds    inputs become int8 per 128: an error of up to 1/254 of the
//                                                         group's peak in each, uniform, that is 0.5 % of the length of
//                                                         a bell-shaped group; a stage of two matrices has it twice,
//                                                         and short vectors scatter around it
#pragma once

#include "tests/kernels/tensors.h"

namespace foresay::test {

inline constexpr double kSums = 1e-5;
inline constexpr double kNorm = 2e-6;
inline constexpr double kActivation = 4e-6;
inline constexpr double kAttention = 2e-5;

inline constexpr double kFloatStage = 1e-5;
inline constexpr double kHalfCacheStage = 2e-3;
inline constexpr double kCodeCacheStage = 5e-3;
inline constexpr double kInt8Stage = 0.04;

// Of a stage whose matrices are in `encoding`.
inline double stage_tolerance(Encoding encoding, bool reads_cache) {
    if (!is_float(encoding)) return kInt8Stage;
    return reads_cache ? kHalfCacheStage : kFloatStage;
}

}  // namespace foresay::test
