// mixed_gemm of BF16 weights (mixed_gemm.cuh).
#include "kernels/cuda/mixed_gemm/mixed_gemm.cuh"

namespace foresay::kernels::cuda {
template void launch_mixed_as<QuantType::bf16>(const OperandCall&, const MixedArgs&, int, int, cudaStream_t);
}  // namespace foresay::kernels::cuda
