// Grouped products of plain numbers (grouped_wgmma.cuh).
#include "kernels/cuda/experts/sm90a/grouped_wgmma.cuh"

namespace foresay::kernels::cuda {
template void launch_grouped_as<QuantType::f16>(cudaStream_t, const GroupedCall&);
template void launch_grouped_as<QuantType::bf16>(cudaStream_t, const GroupedCall&);
}  // namespace foresay::kernels::cuda
