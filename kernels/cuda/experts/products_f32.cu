// The products of float32 experts, which only small models and tests have: a warp per pair of packed rows, lanes divide
// K, plain multiplications, one row of the tile after the other.

#include "kernels/cuda/experts/products.cuh"

namespace foresay::kernels::cuda {

template <>
void launch_products_as<QuantType::f32>(cudaStream_t stream, const ProductsCall& call);

namespace {

// Grid: (eights of pairs, tiles).
__global__ void __launch_bounds__(256) multiply_experts_f32(const ProductsCall c) {
    allow_successor();
    await_predecessors();
    const int lane = static_cast<int>(threadIdx.x % 32);
    TileRows rows(c.with.tiles + blockIdx.y, lane);
    if (rows.count == 0) return;
    rows.locate(c);
    // First packed row of this warp's pair. Pairs never straddle panels, which have 32 rows.
    const int packed = 2 * static_cast<int>(blockIdx.x * 8 + threadIdx.x / 32);
    if (packed >= c.rows) return;
    constexpr BlockFormat format = block_format(QuantType::f32);
    const auto* panel =
        reinterpret_cast<const float*>(c.panels + rows.expert * c.expert_bytes +
                                       static_cast<std::int64_t>(packed / kPanelRows) * c.blocks * format.bytes) +
        packed % kPanelRows * format.inputs;
    for (int row = 0; row < rows.count; ++row) {
        const std::int32_t slot = __shfl_sync(~0u, rows.slot, row);
        const float* const x = c.x + static_cast<std::int64_t>(__shfl_sync(~0u, rows.source, row)) * c.inputs;
        const float2 stats = {__shfl_sync(~0u, rows.stats.x, row), __shfl_sync(~0u, rows.stats.y, row)};
        float a = 0.0f, b = 0.0f;
        for (int k = lane; k < c.inputs; k += 32) {
            const float value = normed_value(c.norm, stats, __ldcg(x + k), k);
            const float* weight = panel + k / format.inputs * (format.bytes / 4) + k % format.inputs;
            a = fmaf(weight[0], value, a);
            b = fmaf(weight[format.inputs], value, b);
        }
        a = warp_sum(a);
        b = warp_sum(b);
        if (lane == 0) finish_pair(c, slot, packed, a, b, biases_of(c, rows.expert, packed));
    }
}

}  // namespace

template <>
void launch_products_as<QuantType::f32>(cudaStream_t stream, const ProductsCall& call) {
    const dim3 grid(static_cast<unsigned>((call.rows + 15) / 16),
                    static_cast<unsigned>(most_tiles(call.slots, call.experts)));
    launch_overlapping("products of float32 experts", multiply_experts_f32, grid, 256, 0, stream, call);
}

}  // namespace foresay::kernels::cuda
