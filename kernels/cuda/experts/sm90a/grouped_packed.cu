// Grouped products of packed rows (grouped_wgmma.cuh).
#include "kernels/cuda/experts/sm90a/grouped_wgmma.cuh"

namespace foresay::kernels::cuda {
template void launch_grouped_as<QuantType::packed>(cudaStream_t, const GroupedCall&);
}  // namespace foresay::kernels::cuda
