// A warp per layer of a row for the embeddings, a thread per value for the gate.
//
// Overlap:  launched as programmatic dependents, so they wait (await_predecessors) before the first access and load
//           with __ldcg, past L1.

#include "kernels/cuda/rowwise/per_layer.h"

#include "kernels/cuda/decode/epilogue.cuh"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/rowwise/norms.cuh"
#include "kernels/cuda/rowwise/token_of.cuh"
#include "kernels/quant/visit.h"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int kThreads = 256, kWarps = kThreads / 32;

// Grid: (rows, layers divided by the warps of a CTA).
template <class Q>
__global__ void __launch_bounds__(kThreads) embed_kernel(PerLayerEmbedCall c) {
    allow_successor();
    await_predecessors();
    const int32_t layer = blockIdx.y * kWarps + threadIdx.x / 32, lane = threadIdx.x % 32;
    if (layer >= c.layers) return;
    const int64_t all = static_cast<int64_t>(c.layers) * c.width, first = static_cast<int64_t>(layer) * c.width;
    const int64_t id = token_of(c.batch.rows[blockIdx.x], c.slots, c.vocab);
    const auto* blocks = reinterpret_cast<const typename Q::Block*>(c.table) + id * (all / Q::kElements);
    float* const values = c.values + blockIdx.x * all + first;
    const auto projected = [&](int32_t i) { return __ldcg(values + i) * c.projection_scale; };
    const NormFactors factors =
        norm_factors(c.norm, lane, 32, c.width, projected, [](float part) { return warp_sum(part); });
    // A lane reads and writes its own values only.
    for (int32_t i = lane; i < c.width; i += 32) {
        const int64_t at = first + i;
        const float own = c.table_scale * Q::dequantize(blocks[at / Q::kElements], static_cast<int>(at % Q::kElements));
        values[i] = (factors.apply(c.norm, projected(i), i) + own) * c.scale;
    }
}

__global__ void __launch_bounds__(kThreads) gate_kernel(PerLayerGateCall c) {
    allow_successor();
    await_predecessors();
    const int32_t i = blockIdx.y * kThreads + threadIdx.x;
    if (i >= c.width) return;
    const int64_t t = blockIdx.x;
    const float own = __ldcg(c.embeddings + t * c.stride + c.first + i);
    c.out[t * c.width + i] = activated(c.activation, __ldcg(c.gate + t * c.width + i)) * own;
}

unsigned blocks_of(int32_t count, int32_t each) { return static_cast<unsigned>((count + each - 1) / each); }

}  // namespace

void launch_per_layer_embed(cudaStream_t stream, const PerLayerEmbedCall& call) {
    const dim3 grid(static_cast<unsigned>(call.rows), blocks_of(call.layers, kWarps));
    visit_quant_type(call.quant_type, [&](auto q) {
        launch_overlapping("per-layer embeddings", embed_kernel<decltype(q)>, grid, kThreads, 0, stream, call);
    });
}

void launch_per_layer_gate(cudaStream_t stream, const PerLayerGateCall& call) {
    const dim3 grid(static_cast<unsigned>(call.rows), blocks_of(call.width, kThreads));
    launch_overlapping("gate of per-layer embeddings", gate_kernel, grid, kThreads, 0, stream, call);
}

}  // namespace foresay::kernels::cuda
