// kernels/cuda/rowwise/norms.h: norms of whole rows where no matrix can do them: LayerNorm before a matrix, and
// everything that happens to a branch before it joins the residual stream.
//
// Layout:   as kernels/cuda/linear.h.
// Law 1:    a row's sums run in an order that its width alone decides.
// Cost:     a CTA per row and about two microseconds; the row is read once.
// Errors:   none; every function enqueues on the stream and returns.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace foresay::kernels::cuda {

// RMS norm: x / sqrt(mean(x^2) + eps) * weight. Centered, which is LayerNorm: the mean is subtracted first, and `bias`
// added at the end.
struct RowNorm {
    const float* weight = nullptr;  // null: there is no norm
    const float* bias = nullptr;    // null: none
    float eps = 0.0f;
    bool centered = false;
};

// out[t] = norm(x[t])
void launch_norm(cudaStream_t stream, std::int32_t rows, std::int32_t width, const float* x, const RowNorm& norm,
                 float* out);

// x[t] = stream_scale * (x[t] + scale * post(inner(y[t]) + branch[t]))
struct AddRowsCall {
    std::int32_t rows = 0, width = 0;
    const float* y = nullptr;       // [T, width]
    const float* branch = nullptr;  // [T, width]; null: none
    RowNorm inner, post;
    float scale = 1.0f, stream_scale = 1.0f;
    float* x = nullptr;  // [T, width]
};
void launch_add_rows(cudaStream_t stream, const AddRowsCall& call);

}  // namespace foresay::kernels::cuda
