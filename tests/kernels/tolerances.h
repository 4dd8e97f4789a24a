// tests/kernels/tolerances.h: how far a result may lie from its oracle, and why. The only place with such numbers.
//
//   row                  relative to                      reason
//   kSums                sum of |weight * input|          float32 sums of up to some hundred terms against double; one
//                                                         wrong scale of a sub-block moves a sum by 1e-3 of that at
//                                                         least
//   kNorm                the largest magnitude            float32 sum of squares, one division, one square root
//   kActivation          the product of magnitudes        exp by a polynomial of degree 6: 2 ulp
//   kAttention           the largest |v|                  scores in float32 become exponents: their error enters the
//                                                         weights as it is
//   op, float            length of what the op adds       the sums above; attention also rounds K and V to float16,
//                                                         whose step is 2^-11: about 3e-4 after averaging
//   op, codes in cache   as above                        K and V differ by rounding before they become codes: here and
//                                                         there a code is one apart
//   op, low codes        as above                        the same with steps of up to 1/8: 16 times those of 8 bits,
//                                                         a sixteenth as often, so that the root of the mean square
//                                                         grows by 4
//   op, int8             length of what the op adds       the CPU's inputs of quantised matrices become int8 per 128:
//                                                         an error of up to 1/254 of the group's peak in each, uniform,
//                                                         that is 0.5 % of the length of a bell-shaped group; an op of
//                                                         two matrices has it twice, and short vectors scatter
//                                                         around it
//   op, float16          length of what the op adds       a device's inputs of quantised matrices become float16, with
//                                                         11 significant bits: an error of 2^-11 of the binade,
//                                                         uniform, is 2^-11 / sqrt(3) / 1.4 = 2.0e-4 of the length.
//                                                         Ops of two matrices have it twice, 2.8e-4; times 4 for
//                                                         short vectors. K and V add the cache's share
#pragma once

#include <string>

#include "kernels/kv_format.h"
#include "tests/kernels/tensors.h"

namespace foresay::test {

inline constexpr double kSums = 1e-5;
inline constexpr double kNorm = 2e-6;
inline constexpr double kActivation = 4e-6;
inline constexpr double kAttention = 2e-5;

inline constexpr double kFloatOp = 1e-5;
inline constexpr double kHalfCacheOp = 2e-3;
inline constexpr double kCodeCacheOp = 5e-3;
inline constexpr double kLowCodeCacheOp = 2e-2;
inline constexpr double kInt8Op = 0.04;
inline constexpr double kHalfInputOp = 1.2e-3;

inline double cache_tolerance(kernels::KvFormat format) {
    if (kernels::has_low_bits(format)) return kLowCodeCacheOp;
    return format == kernels::KvFormat::q8 ? kCodeCacheOp : kHalfCacheOp;
}

// Of an op of `backend` whose matrices have the type `quant_type`.
inline double op_tolerance(const std::string& backend, QuantType quant_type, bool reads_cache) {
    const double cache = reads_cache ? kHalfCacheOp : kFloatOp;
    if (is_float(quant_type)) return cache;
    return backend == "cuda" ? kHalfInputOp + cache : kInt8Op;
}

}  // namespace foresay::test
