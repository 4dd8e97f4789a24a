// kernels/cuda/prefill/dequantize.h: panels back to plain rows of numbers, for the matrix products of prefill rows.
//
// Layout:   out [packed rows, stride], packed rows as the panels have them, inputs padded to whole blocks; padding is
//           0. Float32 panels become float32, all others float16.
// Precision: float16 numbers are the weights times 2^shift, rounded once. The shift makes the largest weight of a part
//           about 2^14, so that small weights keep their digits and large ones stay finite.
// Cost:     reads the panels and writes the rows once, at the speed of memory.
// Errors:   none at run time.
#pragma once

#include <cstdint>

#include "kernels/cuda/weights/panels.h"

namespace foresay::kernels::cuda {

// The shift of a part: 0 for float16 and float32. Reads its scales and waits.
int dequantize_shift(const Panels::Part& part);

// Panels [first, first + count) of a part to `out`; stride in elements, a multiple of 8.
void launch_dequantize(cudaStream_t stream, const Panels::Part& part, std::int32_t first, std::int32_t count, int shift,
                       void* out, std::int64_t stride);

}  // namespace foresay::kernels::cuda
