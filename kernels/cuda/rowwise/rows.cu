// Kernels over rows between the matrices.
//
//   embed       CTA (t, 0) writes x[t] and the cache cells of row t; CTA (t, 1 + i) computes the angles of rope table i
//               for the row. It is the first kernel of a forward and launched without overlap: it reads the batch,
//               which a copy on the stream has just written.
//   angles      CTA (t, i): the angles alone, for forwards that begin without embed.
//   add_normed  a CTA per row, post norms.
//   heads       a warp per head of a row (heads.cuh).
//
// Overlap:  add_normed and heads are launched as programmatic dependents, so they wait (await_predecessors) before the
//           first access and load with __ldcg, past L1. embed lets its successor start early but does not wait itself.

#include "kernels/cuda/rowwise/rows.h"

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/rowwise/heads.cuh"
#include "kernels/quant/visit.h"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int kThreads = 256;

// Angles in double precision: position times frequency has too many digits for float32 at 100,000 positions.
__device__ void compute_angles(const RopeTable& rope, int32_t t, int32_t position) {
    for (int32_t i = threadIdx.x; i < rope.pairs; i += kThreads) {
        const double angle = static_cast<double>(position) * rope.inverse_frequency[i];
        double s, c;
        sincos(angle, &s, &c);
        rope.angles[static_cast<int64_t>(t) * rope.pairs + i] =
            make_float2(static_cast<float>(c * rope.attention_factor), static_cast<float>(s * rope.attention_factor));
    }
}

__global__ void angles_kernel(BatchView batch, RopeTables ropes) {
    compute_angles(ropes.table[blockIdx.y], blockIdx.x, batch.rows[blockIdx.x].position);
}

template <class Q>
__global__ void embed_kernel(EmbedCall c) {
    allow_successor();
    const int32_t t = blockIdx.x;
    const RowState row = c.batch.rows[t];
    // A token id, or ~slot: then the token comes from its slot, where an earlier sampling kernel has left it. Clamped,
    // because a slot has -1 if no logit of its row was a candidate, and -1 would read outside the table.
    int64_t id = row.token >= 0 ? row.token : c.slots[~row.token].token;
    id = id < 0 ? 0 : id < c.vocab ? id : c.vocab - 1;
    if (blockIdx.y == 0) {
        const auto* blocks = reinterpret_cast<const typename Q::Block*>(c.table) + id * (c.d_model / Q::kElements);
        float* x = c.x + static_cast<int64_t>(t) * c.d_model;
        for (int32_t i = threadIdx.x; i < c.d_model; i += kThreads) {
            const float value = Q::dequantize(blocks[i / Q::kElements], i % Q::kElements);
            x[i] = c.scale != 1.0f ? value * c.scale : value;
        }
        if (threadIdx.x == 0) {
            const int32_t page = c.batch.lists[row.pages + row.cell / kPagePositions];
            c.k_cell[t] = c.kv.k_cell(page, row.cell % kPagePositions);
            c.v_cell[t] = c.kv.v_cell(page, row.cell % kPagePositions);
        }
        return;
    }
    compute_angles(c.ropes.table[blockIdx.y - 1], t, row.position);
}

// The sum of `value` over a CTA, the same in every thread. Warps are added in their order (law 1). Once per kernel: a
// second call would overwrite `partial` while other warps read it.
__device__ float block_sum(float value) {
    __shared__ float partial[32];
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += partial[warp];
    return sum;
}

// x[t] += y[t] / rms(y[t]) * weight, a CTA per row; no other CTA touches the row.
__global__ void add_normed_kernel(int32_t width, const float* y, const float* weight, float eps, float* x) {
    allow_successor();
    await_predecessors();
    y += static_cast<int64_t>(blockIdx.x) * width;
    x += static_cast<int64_t>(blockIdx.x) * width;
    float squares = 0;
    for (int32_t i = threadIdx.x; i < width; i += kThreads) squares = fmaf(__ldcg(y + i), __ldcg(y + i), squares);
    const float scale = 1.0f / sqrtf(block_sum(squares) / static_cast<float>(width) + eps);
    for (int32_t i = threadIdx.x; i < width; i += kThreads) x[i] = __ldcg(x + i) + __ldcg(y + i) * scale * weight[i];
}

// A warp for a head of a row. Grid: (rows, heads of q, k and v divided by the warps of a CTA).
__global__ void heads_kernel(HeadsCall c) {
    __shared__ float values[kThreads / 32][kMaxHeadDim];
    allow_successor();
    await_predecessors();
    const int warp = threadIdx.x / 32;
    const int32_t head = blockIdx.y * (kThreads / 32) + warp;
    if (head < c.heads + 2 * c.kv_heads) write_head(c, blockIdx.x, head, values[warp], threadIdx.x % 32);
}

}  // namespace

void launch_embed(cudaStream_t stream, const EmbedCall& call) {
    const dim3 grid(static_cast<unsigned>(call.rows), static_cast<unsigned>(1 + call.ropes.count));
    visit_quant_type(call.quant_type, [&](auto q) { embed_kernel<decltype(q)><<<grid, kThreads, 0, stream>>>(call); });
    launched("embed");
}

void launch_angles(cudaStream_t stream, const BatchView& batch, int32_t rows, const RopeTables& ropes) {
    if (ropes.count == 0) return;
    const dim3 grid(static_cast<unsigned>(rows), static_cast<unsigned>(ropes.count));
    angles_kernel<<<grid, kThreads, 0, stream>>>(batch, ropes);
    launched("angles");
}

void launch_add_normed(cudaStream_t stream, int32_t rows, int32_t width, const float* y, const float* weight, float eps,
                       float* x) {
    launch_overlapping("norm and add", add_normed_kernel, dim3(static_cast<unsigned>(rows)), kThreads, 0, stream, width,
                       y, weight, eps, x);
}

void launch_heads(cudaStream_t stream, const HeadsCall& call) {
    const int heads = call.heads + 2 * call.kv_heads, per_block = kThreads / 32;
    const dim3 grid(static_cast<unsigned>(call.rows), static_cast<unsigned>((heads + per_block - 1) / per_block));
    launch_overlapping("heads", heads_kernel, grid, kThreads, 0, stream, call);
}

}  // namespace foresay::kernels::cuda
