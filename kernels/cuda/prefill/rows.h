// kernels/cuda/prefill/rows.h: what happens to prefill rows before and after their matrix products.
//
// Layout:   x [T, inputs] float32 becomes rows of `stride` numbers, zeros after the inputs; sums [T, stride] in packed
//           rows, part after part.
// Precision: a row is scaled by a power of two that brings its largest number to about 2^14, and rounded to float16.
//           `scale` [T] receives the factor that the row's sums must be multiplied by: the inverse of that power, times
//           1 / rms if there is a norm.
// Law 1:    sums over a row run in an order that its width alone decides.
// Cost:     each reads its inputs once or twice (the second time from the cache) and writes its outputs once.
// Errors:   none; every function enqueues on the stream and returns.
#pragma once

#include <cstdint>

#include "kernels/cuda/decode/gemv.h"

namespace foresay::kernels::cuda {

struct ConvertCall {
    std::int32_t rows = 0, inputs = 0;
    const float* x = nullptr;
    const float* norm = nullptr;  // [inputs]; null: no norm
    float eps = 0.0f;
    bool half = true;     // what `out` holds: float16, or float32
    void* out = nullptr;  // [T, stride]
    std::int64_t stride = 0;
    float* scale = nullptr;                // [T]
    const std::uint16_t* order = nullptr;  // [inputs]: which input stands at each place; null: as they come
};
void launch_convert(cudaStream_t stream, const ConvertCall& call);

// The sums of a part and what scales them back.
struct GemmSums {
    std::int32_t rows = 0;
    const float* sums = nullptr;  // of the part's first row
    std::int64_t stride = 0;
    const float* scale = nullptr;  // [T]
    const float* bias = nullptr;   // [rows of the stack]; null: none
    __half* kv = nullptr;          // attention_in: of the layer
};
// attention_in and out, one part at a time.
void launch_epilogue(cudaStream_t stream, const GemmSums& in, const EpilogueArgs& epilogue);

// mlp_in. With `halves` set, rows go there in the form that mlp_out multiplies, with their scales to `scale`, and
// epilogue.out is not written. A CTA has a whole row then, so that its largest number is known.
void launch_mlp_epilogue(cudaStream_t stream, const GemmSums& in, const EpilogueArgs& epilogue, __half* halves,
                         std::int64_t halves_stride, float* scale);
// Whether rows of so many units can become halves: a row is held in shared memory.
bool mlp_rows_fit(std::int64_t units);

}  // namespace foresay::kernels::cuda
