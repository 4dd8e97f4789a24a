// mixed_gemm of Q6_K weights (mixed_gemm.cuh).
#include "kernels/cuda/mixed_gemm/mixed_gemm.cuh"

namespace foresay::kernels::cuda {
template void launch_mixed_as<QuantType::q6_k>(const OperandCall&, const MixedArgs&, int, int, cudaStream_t);
}  // namespace foresay::kernels::cuda
