// mixed_gemm of codes with a scale for each 32 inputs, and of plain numbers (mixed_wgmma.cuh). Few files, because half
// the time that one takes to compile is that of its headers.
#include "kernels/cuda/mixed_gemm/sm90a/mixed_wgmma.cuh"

namespace foresay::kernels::cuda {
template void launch_mixed_as<QuantType::q4_0>(const OperandCall&, const MixedArgs&, const DeviceInfo&, cudaStream_t);
template void launch_mixed_as<QuantType::q8_0>(const OperandCall&, const MixedArgs&, const DeviceInfo&, cudaStream_t);
template void launch_mixed_as<QuantType::f16>(const OperandCall&, const MixedArgs&, const DeviceInfo&, cudaStream_t);
template void launch_mixed_as<QuantType::bf16>(const OperandCall&, const MixedArgs&, const DeviceInfo&, cudaStream_t);
}  // namespace foresay::kernels::cuda
