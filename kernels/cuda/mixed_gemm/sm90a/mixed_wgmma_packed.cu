// mixed_gemm of packed rows, all packings in one (packed_tile.cuh).
#include "kernels/cuda/mixed_gemm/sm90a/mixed_wgmma.cuh"
#include "kernels/cuda/mixed_gemm/sm90a/packed_tile.cuh"

namespace foresay::kernels::cuda {
template void launch_mixed_as<QuantType::packed>(const OperandCall&, const MixedArgs&, const DeviceInfo&, cudaStream_t);
}  // namespace foresay::kernels::cuda
