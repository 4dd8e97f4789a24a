// mixed_gemm of K-quants (mixed_wgmma.cuh).
#include "kernels/cuda/mixed_gemm/sm90a/mixed_wgmma.cuh"

namespace foresay::kernels::cuda {
template void launch_mixed_as<QuantType::q4_k>(const OperandCall&, const MixedArgs&, const DeviceInfo&, cudaStream_t);
template void launch_mixed_as<QuantType::q5_k>(const OperandCall&, const MixedArgs&, const DeviceInfo&, cudaStream_t);
template void launch_mixed_as<QuantType::q6_k>(const OperandCall&, const MixedArgs&, const DeviceInfo&, cudaStream_t);
}  // namespace foresay::kernels::cuda
