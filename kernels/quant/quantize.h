// kernels/quant/quantize.h: quantises a block of float32 values to each type.
//
// Precision: scales are chosen so that every value lies within its group's range, then codes round to nearest. With s
//           the step between neighbouring codes of a group, the error is at most s / 2 (Q4_0: s, see below). There is
//           no search for better scales: good enough for random weights, tests and benchmarks, not for model files.
// Threads:  any.
// Errors:   none; values must be finite and small enough for an f16 scale (below 65504 times the largest code).
#pragma once

#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/f32.h"
#include "kernels/quant/k_scales.h"
#include "kernels/quant/mxfp4.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q6_k.h"
#include "kernels/quant/q8_0.h"

namespace foresay::kernels {

void quantize_block(const float* values, F32::Block& out);
void quantize_block(const float* values, F16::Block& out);
void quantize_block(const float* values, BF16::Block& out);
// The value of largest magnitude becomes code 0 (-8 steps). A value of equal magnitude and opposite sign would need +8,
// and becomes +7.
void quantize_block(const float* values, Q4_0::Block& out);
void quantize_block(const float* values, Q8_0::Block& out);
void quantize_block(const float* values, Q6_K::Block& out);
// The smallest power of two for which the largest magnitude is a number; at most 2^126. The error is at most half the
// distance of the numbers around a value, so at most the power of two.
void quantize_block(const float* values, MXFP4::Block& out);

// K types with minima: chooses d, dmin, scales and minima so that each group's codes below 2^bits span its values.
void quantize_groups(const float* values, int bits, StoredF16& d, StoredF16& dmin, KScales& scales,
                     std::uint8_t (&codes)[256]);
template <class Block>
requires requires(Block& block) { block.dmin; }
void quantize_block(const float* values, Block& out) {
    std::uint8_t codes[256];
    quantize_groups(values, Block::kCodeBits, out.d, out.dmin, out.scales, codes);
    for (int i = 0; i < 256; ++i) out.set_code(i, codes[i]);
}

}  // namespace foresay::kernels
