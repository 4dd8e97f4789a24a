// A CTA per row; no other CTA touches the row. The row lies in shared memory between the passes over it.
//
// Overlap:  launched as programmatic dependents, so they wait (await_predecessors) before the first access and load
//           with __ldcg, past L1.

#include "kernels/cuda/rowwise/norms.cuh"

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int kThreads = 256;

__device__ NormFactors row_factors(const RowNorm& norm, int32_t width, const float* row, float* partial) {
    return norm_factors(
        norm, static_cast<int32_t>(threadIdx.x), kThreads, width, [&](int32_t i) { return row[i]; },
        [&](float value) { return block_sum(value, partial); });
}

__global__ void __launch_bounds__(kThreads) norm_kernel(int32_t width, const float* x, RowNorm norm, float* out) {
    extern __shared__ float row[];
    __shared__ float partial[kThreads / 32];
    allow_successor();
    await_predecessors();
    x += static_cast<int64_t>(blockIdx.x) * width;
    out += static_cast<int64_t>(blockIdx.x) * width;
    // A thread reads back only what it has written itself.
    for (int32_t i = threadIdx.x; i < width; i += kThreads) row[i] = __ldcg(x + i);
    const NormFactors factors = row_factors(norm, width, row, partial);
    for (int32_t i = threadIdx.x; i < width; i += kThreads) out[i] = factors.apply(norm, row[i], i);
}

__global__ void __launch_bounds__(kThreads) add_rows_kernel(AddRowsCall c) {
    extern __shared__ float row[];
    __shared__ float partial[kThreads / 32];
    allow_successor();
    await_predecessors();
    const int64_t begin = static_cast<int64_t>(blockIdx.x) * c.width;
    const float* const y = c.y + begin;
    float* const x = c.x + begin;
    for (int32_t i = threadIdx.x; i < c.width; i += kThreads) row[i] = __ldcg(y + i);
    if (c.inner.weight != nullptr || c.branch != nullptr) {
        const NormFactors inner = row_factors(c.inner, c.width, row, partial);
        for (int32_t i = threadIdx.x; i < c.width; i += kThreads) {
            row[i] = inner.apply(c.inner, row[i], i);
            if (c.branch != nullptr) row[i] += __ldcg(c.branch + begin + i);
        }
    }
    const NormFactors post = row_factors(c.post, c.width, row, partial);
    for (int32_t i = threadIdx.x; i < c.width; i += kThreads) {
        x[i] = c.stream_scale * (__ldcg(x + i) + c.scale * post.apply(c.post, row[i], i));
    }
}

int row_bytes(int32_t width) { return width * static_cast<int>(sizeof(float)); }

}  // namespace

void launch_norm(cudaStream_t stream, int32_t rows, int32_t width, const float* x, const RowNorm& norm, float* out) {
    launch_overlapping("norm", norm_kernel, dim3(static_cast<unsigned>(rows)), kThreads, row_bytes(width), stream,
                       width, x, norm, out);
}

void launch_add_rows(cudaStream_t stream, const AddRowsCall& call) {
    launch_overlapping("norm and add", add_rows_kernel, dim3(static_cast<unsigned>(call.rows)), kThreads,
                       row_bytes(call.width), stream, call);
}

}  // namespace foresay::kernels::cuda
