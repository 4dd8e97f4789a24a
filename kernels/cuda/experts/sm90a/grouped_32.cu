// Grouped products of types with a scale for every 32 inputs (grouped_wgmma.cuh).
#include "kernels/cuda/experts/sm90a/grouped_wgmma.cuh"

namespace foresay::kernels::cuda {
template void launch_grouped_as<QuantType::q4_0>(cudaStream_t, const GroupedCall&);
template void launch_grouped_as<QuantType::q8_0>(cudaStream_t, const GroupedCall&);
template void launch_grouped_as<QuantType::mxfp4>(cudaStream_t, const GroupedCall&);
}  // namespace foresay::kernels::cuda
