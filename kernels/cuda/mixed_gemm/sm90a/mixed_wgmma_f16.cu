// mixed_gemm of F16 weights (mixed_wgmma.cuh).
#include "kernels/cuda/mixed_gemm/sm90a/mixed_wgmma.cuh"

namespace foresay::kernels::cuda {
template void launch_mixed_as<QuantType::f16>(const OperandCall&, const MixedArgs&, const DeviceInfo&, cudaStream_t);
}  // namespace foresay::kernels::cuda
