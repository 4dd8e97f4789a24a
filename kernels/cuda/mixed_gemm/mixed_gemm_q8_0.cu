// mixed_gemm of Q8_0 weights (mixed_gemm.cuh).
#include "kernels/cuda/mixed_gemm/mixed_gemm.cuh"

namespace foresay::kernels::cuda {
template void launch_mixed_as<QuantType::q8_0>(const OperandCall&, const MixedArgs&, int, int, cudaStream_t);
}  // namespace foresay::kernels::cuda
