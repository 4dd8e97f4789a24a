// The decode kernel of float32 matrices, which only small models and tests have: a warp per pair of packed rows, lanes
// divide K, plain multiplications, one row of the batch after the other. No ring, no CTA waits for another, and one
// matrix per launch (LinearSequence does not join float32 ops).
//
// Law 1:    a row's sums run lane by lane over K and then over the lanes, whatever the number of rows.

#include "kernels/cuda/decode/gemv_launch.cuh"

namespace foresay::kernels::cuda {
namespace {

__device__ float warp_sum(float value) {
#pragma unroll
    for (int offset = 16; offset > 0; offset /= 2) value += __shfl_xor_sync(~0u, value, offset);
    return value;
}

__global__ void __launch_bounds__(256) gemv_f32(const __grid_constant__ GemvArgs<kFewSteps> args) {
    const GemvOp& op = args.op(0);
    const GemvStep& step = args.step[0];
    allow_successor();
    await_predecessors();
    const int lane = threadIdx.x % 32;
    // First packed row of this warp's pair; eight warps per CTA. Pairs never straddle panels, which have 32 rows.
    const std::int64_t packed = 2 * (static_cast<std::int64_t>(blockIdx.x) * 8 + threadIdx.x / 32);
    if (packed >= op.epilogue.rows) return;
    constexpr BlockFormat format = block_format(QuantType::f32);
    const auto* panel = reinterpret_cast<const float*>(step.panels + packed / kPanelRows * op.blocks *
                                                                         static_cast<std::int64_t>(format.bytes)) +
                        packed % kPanelRows * format.inputs;
    // A row is read again for each pair of packed rows: these matrices are small, and the cache has it.
    for (int t = 0; t < args.rows; ++t) {
        const int row = op.row != nullptr ? __ldcg(op.row + t) : t;
        const float* x = op.x + static_cast<std::int64_t>(row) * op.inputs;
        float a = 0.0f, b = 0.0f, squares = 0.0f;
        for (int k = lane; k < op.inputs; k += 32) {
            float value = __ldcg(x + k);
            squares = fmaf(value, value, squares);
            if (step.norm != nullptr) value *= step.norm[k];
            const float* weight = panel + k / format.inputs * (format.bytes / 4) + k % format.inputs;
            a = fmaf(weight[0], value, a);
            b = fmaf(weight[format.inputs], value, b);
        }
        a = warp_sum(a);
        b = warp_sum(b);
        squares = warp_sum(squares);
        if (lane != 0) continue;
        const float factor = step.norm != nullptr ? norm_factor(op, squares) : 1.0f;
        epilogue_pair(op.epilogue, step.bias, step.kv, packed, t, a * factor, b * factor);
    }
}

}  // namespace

template <>
void launch_gemv_as<QuantType::f32>(const GemvArgs<kManySteps>& args, int /*processors*/, bool overlap,
                                    cudaStream_t stream) {
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>((args.op(0).epilogue.rows + 15) / 16));
    config.blockDim = dim3(256);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlap ? 1 : 0;
    launch_check(cudaLaunchKernelEx(&config, gemv_f32, few_steps(args)), "cannot launch gemv_f32");
}

}  // namespace foresay::kernels::cuda
