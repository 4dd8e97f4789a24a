// kernels/cuda/prefill/dequantize_packed.h: panels of packed rows back to plain rows (dequantize.h).
//
// Layout:   inputs stand in the order of the packing, if it has one: who multiplies gathers its rows (packed_order).
// Precision: float32 numbers are the weights, bit for bit those of dequantize_packed() (kernels/quant/packing.h).
#pragma once

#include <cstdint>

#include "kernels/cuda/weights/panels.h"

namespace foresay::kernels::cuda {

// Panels [first, first + count) to `out`, float16 times 2^shift; stride in elements.
void launch_dequantize_packed(cudaStream_t stream, const Panels::Part& part, std::int32_t first, std::int32_t count,
                              int shift, void* out, std::int64_t stride);
// The same as float32, unscaled.
void launch_dequantize_packed_f32(cudaStream_t stream, const Panels::Part& part, std::int32_t first, std::int32_t count,
                                  float* out, std::int64_t stride);
// The largest magnitude of a weight, as the bits of a float, is put to `found` if it is larger.
void launch_largest_packed(const Panels::Part& part, std::uint32_t* found);

// The order of the inputs, on the device: which input stands at each place; null: as they come. Waits.
const std::uint16_t* packed_order(const Panels::Part& part);

}  // namespace foresay::kernels::cuda
