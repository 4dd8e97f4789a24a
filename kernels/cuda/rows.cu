#include "kernels/cuda/rows.h"

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.cuh"
#include "kernels/quant/visit.h"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int kThreads = 256;

__device__ void turn(const RopeTable& rope, int32_t t, int32_t position) {
    for (int32_t i = threadIdx.x; i < rope.pairs; i += kThreads) {
        const double angle = static_cast<double>(position) * rope.inverse_frequency[i];
        double s, c;
        sincos(angle, &s, &c);
        rope.angles[static_cast<int64_t>(t) * rope.pairs + i] =
            make_float2(static_cast<float>(c * rope.magnitude), static_cast<float>(s * rope.magnitude));
    }
}

__global__ void angles_kernel(BatchView batch, RopeTables ropes) {
    turn(ropes.table[blockIdx.y], blockIdx.x, batch.rows[blockIdx.x].position);
}

template <class Q>
__global__ void embed_kernel(EmbedCall c) {
    allow_successor();
    const int32_t t = blockIdx.x;
    const RowState row = c.batch.rows[t];
    int64_t id = row.token >= 0 ? row.token : c.slots[~row.token].token;
    id = id < 0 ? 0 : id < c.vocab ? id : c.vocab - 1;
    if (blockIdx.y == 0) {
        const auto* blocks = reinterpret_cast<const typename Q::Block*>(c.table) + id * (c.d_model / Q::kElements);
        float* x = c.x + static_cast<int64_t>(t) * c.d_model;
        for (int32_t i = threadIdx.x; i < c.d_model; i += kThreads) {
            const float value = Q::decode(blocks[i / Q::kElements], i % Q::kElements);
            x[i] = c.scale != 1.0f ? value * c.scale : value;
        }
        if (threadIdx.x == 0) {
            const int32_t page = c.batch.lists[row.pages + row.cell / kPagePositions];
            c.k_cell[t] = c.kv.k_cell(page, row.cell % kPagePositions);
            c.v_cell[t] = c.kv.v_cell(page, row.cell % kPagePositions);
        }
        return;
    }
    turn(c.ropes.table[blockIdx.y - 1], t, row.position);
}

// The sum of `value` over a block, the same in every thread.
__device__ float block_sum(float value) {
    __shared__ float partial[32];
    for (int offset = 16; offset > 0; offset >>= 1) value += __shfl_xor_sync(0xffffffffu, value, offset);
    if (threadIdx.x % 32 == 0) partial[threadIdx.x / 32] = value;
    __syncthreads();
    float sum = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp) sum += partial[warp];
    return sum;
}

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

__device__ __half saturated_half(float value) { return __float2half_rn(fminf(fmaxf(value, -65504.0f), 65504.0f)); }

constexpr int kMaxHeadDim = 256;

// One warp for a head of a row.
__global__ void finish_heads_kernel(FinishHeadsCall c) {
    __shared__ float values[kThreads / 32][kMaxHeadDim];
    allow_successor();
    await_predecessors();
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int32_t all = c.heads + 2 * c.kv_heads;
    const int32_t head = blockIdx.y * (kThreads / 32) + warp, t = blockIdx.x;
    if (head >= all) return;
    const float* raw = c.raw + (static_cast<int64_t>(t) * all + head) * c.head_dim;
    if (head >= c.heads + c.kv_heads) {
        __half* v = c.kv + c.v_cell[t] + (head - c.heads - c.kv_heads) * c.head_stride;
        for (int32_t d = lane; d < c.head_dim; d += 32) v[d * kPagePositions] = saturated_half(__ldcg(raw + d));
        return;
    }
    const bool query = head < c.heads;
    const float* norm = query ? c.q_norm : c.k_norm;
    float* mine = values[warp];
    float squares = 0;
    for (int32_t d = lane; d < c.head_dim; d += 32) {
        const float value = __ldcg(raw + d);
        mine[d] = value;
        squares = fmaf(value, value, squares);
    }
    if (norm != nullptr) {
        for (int offset = 16; offset > 0; offset >>= 1) squares += __shfl_xor_sync(0xffffffffu, squares, offset);
        const float scale = 1.0f / sqrtf(squares / static_cast<float>(c.head_dim) + (query ? c.q_eps : c.k_eps));
        for (int32_t d = lane; d < c.head_dim; d += 32) mine[d] = mine[d] * scale * norm[d];
    }
    __syncwarp();
    if (c.pairs != RopePairs::none) {
        const float2* angles = c.angles + static_cast<int64_t>(t) * c.rope_pairs;
        for (int32_t i = lane; i < c.rope_pairs; i += 32) {
            const int32_t first = c.pairs == RopePairs::adjacent ? 2 * i : i;
            const int32_t second = c.pairs == RopePairs::adjacent ? 2 * i + 1 : i + c.rope_pairs;
            const float a = mine[first], b = mine[second];
            const float2 angle = __ldcg(angles + i);
            mine[first] = fmaf(a, angle.x, -(b * angle.y));
            mine[second] = fmaf(a, angle.y, b * angle.x);
        }
        __syncwarp();
    }
    if (query) {
        float* q = c.q + (static_cast<int64_t>(t) * c.heads + head) * c.head_dim;
        for (int32_t d = lane; d < c.head_dim; d += 32) q[d] = mine[d];
    } else {
        __half* k = c.kv + c.k_cell[t] + (head - c.heads) * c.head_stride;
        for (int32_t d = lane; d < c.head_dim; d += 32) k[d] = saturated_half(mine[d]);
    }
}

}  // namespace

void launch_embed(cudaStream_t stream, const EmbedCall& call) {
    const dim3 grid(static_cast<unsigned>(call.rows), static_cast<unsigned>(1 + call.ropes.count));
    visit_encoding(call.encoding, [&](auto q) { embed_kernel<decltype(q)><<<grid, kThreads, 0, stream>>>(call); });
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

void launch_finish_heads(cudaStream_t stream, const FinishHeadsCall& call) {
    const int heads = call.heads + 2 * call.kv_heads, per_block = kThreads / 32;
    const dim3 grid(static_cast<unsigned>(call.rows), static_cast<unsigned>((heads + per_block - 1) / per_block));
    launch_overlapping("heads", finish_heads_kernel, grid, kThreads, 0, stream, call);
}

}  // namespace foresay::kernels::cuda
