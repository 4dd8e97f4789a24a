// Kernels over rows between the matrices.
//
//   embed       CTA (t, 0) writes x[t] and the cache cells of row t; CTA (t, 1 + i) computes the angles of rope table i
//               for the row. It is the first kernel of a forward and launched without overlap: it reads the batch,
//               which a copy on the stream has just written.
//   places      the same without x, for forwards that begin without embed.
//   heads       a warp per head of a row (heads.cuh).
//
// Overlap:  heads is launched as a programmatic dependent, so it waits (await_predecessors) before the first access and
//           loads with __ldcg, past L1. embed lets its successor start early but does not wait itself.

#include "kernels/cuda/rowwise/rows.h"

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/rowwise/heads.cuh"
#include "kernels/cuda/rowwise/token_of.cuh"
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

// The cells of row t of a float16 cache; by one thread.
__device__ void find_cells(const EmbedCall& c, int32_t t, const RowState& row) {
    const int32_t page = c.batch.lists[row.pages + row.cell / kPagePositions];
    c.k_cell[t] = c.kv.k_cell(page, row.cell % kPagePositions);
    c.v_cell[t] = c.kv.v_cell(page, row.cell % kPagePositions);
}

__global__ void places_kernel(EmbedCall c) {
    const int32_t t = blockIdx.x;
    const RowState row = c.batch.rows[t];
    if (blockIdx.y > 0) return compute_angles(c.ropes.table[blockIdx.y - 1], t, row.position);
    if (threadIdx.x == 0) find_cells(c, t, row);
}

template <class Q>
__global__ void embed_kernel(EmbedCall c) {
    allow_successor();
    const int32_t t = blockIdx.x;
    const RowState row = c.batch.rows[t];
    if (blockIdx.y == 0) {
        const int64_t id = token_of(row, c.slots, c.vocab);
        const auto* blocks = reinterpret_cast<const typename Q::Block*>(c.table) + id * (c.d_model / Q::kElements);
        float* x = c.x + static_cast<int64_t>(t) * c.d_model;
        for (int32_t i = threadIdx.x; i < c.d_model; i += kThreads) {
            const float value = Q::dequantize(blocks[i / Q::kElements], i % Q::kElements);
            x[i] = c.scale != 1.0f ? value * c.scale : value;
        }
        if (threadIdx.x == 0) find_cells(c, t, row);
        return;
    }
    compute_angles(c.ropes.table[blockIdx.y - 1], t, row.position);
}

// The norm over all heads of Q, or of K, together, by all threads of the CTA.
__device__ NormFactors whole_factors(const RowNorm& norm, const float* values, int32_t count, float* partial) {
    return norm_factors(
        norm, static_cast<int32_t>(threadIdx.x), kThreads, count, [&](int32_t i) { return __ldcg(values + i); },
        [&](float value) { return block_sum(value, partial); });
}

// A warp for a head of a row. Grid: (rows, heads of q, k and v divided by the warps of a CTA). kMost: values of a head.
template <int kMost>
__global__ void __launch_bounds__(kThreads) heads_kernel(HeadsCall c) {
    __shared__ float values[kThreads / 32][kMost];
    __shared__ float partial[kThreads / 32];
    allow_successor();
    await_predecessors();
    NormFactors whole[2];  // of q and k
    if (c.whole_norms) {
        // Every CTA of a row sums up the same numbers in the same order.
        const int32_t q = c.heads * c.head_dim, k = c.kv_heads * c.head_dim;
        const float* const row = c.raw + static_cast<int64_t>(blockIdx.x) * (q + 2 * k);
        whole[0] = whole_factors(c.q_norm, row, q, partial);
        if (k > 0) whole[1] = whole_factors(c.k_norm, row + q, k, partial);
    }
    const int warp = threadIdx.x / 32;
    const int32_t head = blockIdx.y * (kThreads / 32) + warp;
    if (head >= c.heads + 2 * c.kv_heads) return;
    write_head<kMost>(c, blockIdx.x, head, whole, values[warp], threadIdx.x % 32);
}

// A warp for a head of a row. Grid: (rows, heads divided by the warps of a CTA).
__global__ void __launch_bounds__(kThreads) rotate_kernel(float* values, std::int32_t heads, std::int32_t head_dim) {
    __shared__ float own[kThreads / 32][kMaxAttendWidth];
    allow_successor();
    await_predecessors();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t head = blockIdx.y * (kThreads / 32) + warp;
    if (head >= heads) return;
    float* const at = values + (static_cast<int64_t>(blockIdx.x) * heads + head) * head_dim;
    for (int32_t d = lane; d < head_dim; d += 32) own[warp][d] = __ldcg(at + d);
    rotate_for_cache(own[warp], head_dim, lane);
    for (int32_t d = lane; d < head_dim; d += 32) at[d] = own[warp][d];
}

}  // namespace

void launch_embed(cudaStream_t stream, const EmbedCall& call) {
    const dim3 grid(static_cast<unsigned>(call.rows), static_cast<unsigned>(1 + call.ropes.count));
    visit_quant_type(call.quant_type, [&](auto q) { embed_kernel<decltype(q)><<<grid, kThreads, 0, stream>>>(call); });
    launched("embed");
}

void launch_places(cudaStream_t stream, const EmbedCall& call) {
    const dim3 grid(static_cast<unsigned>(call.rows), static_cast<unsigned>(1 + call.ropes.count));
    places_kernel<<<grid, kThreads, 0, stream>>>(call);
    launched("places of rows");
}

void launch_rotate_back(cudaStream_t stream, const AttendCall& call) {
    const int per_block = kThreads / 32;
    const dim3 grid(static_cast<unsigned>(call.rows), static_cast<unsigned>((call.heads + per_block - 1) / per_block));
    launch_overlapping("rotation of heads", rotate_kernel, grid, kThreads, 0, stream, call.out, call.heads,
                       call.head_dim);
}

void launch_heads(cudaStream_t stream, const HeadsCall& call) {
    const int heads = call.heads + 2 * call.kv_heads, per_block = kThreads / 32;
    const dim3 grid(static_cast<unsigned>(call.rows), static_cast<unsigned>((heads + per_block - 1) / per_block));
    const auto kernel = call.head_dim <= kFewValues ? heads_kernel<kFewValues> : heads_kernel<kMaxAttendWidth>;
    launch_overlapping("heads", kernel, grid, kThreads, 0, stream, call);
}

}  // namespace foresay::kernels::cuda
