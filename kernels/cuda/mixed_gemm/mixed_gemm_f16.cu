// mixed_gemm of F16 weights (mixed_gemm.cuh).
#include "kernels/cuda/mixed_gemm/mixed_gemm.cuh"

namespace foresay::kernels::cuda {
template void launch_mixed_as<QuantType::f16>(const OperandCall&, const MixedArgs&, int, int, cudaStream_t);
}  // namespace foresay::kernels::cuda
