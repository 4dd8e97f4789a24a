// tests/cuda_linear/emulated/kernels/cuda/mixed_gemm/mixed_gemm.cuh: what packed_tile.cuh names of it.
#pragma once

#include "kernels/cuda/mixed_gemm/mixed_plan.h"
#include "kernels/cuda/mixed_gemm/operands.cuh"

namespace foresay::kernels::cuda {

struct MixedArgs {
    GemvOp op;
    GemvStep step;
};
template <QuantType E>
class PanelBlocks;

}  // namespace foresay::kernels::cuda
