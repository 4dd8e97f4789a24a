// Grouped products of K-quants (grouped_wgmma.cuh).
#include "kernels/cuda/experts/sm90a/grouped_wgmma.cuh"

namespace foresay::kernels::cuda {
template void launch_grouped_as<QuantType::q4_k>(cudaStream_t, const GroupedCall&);
template void launch_grouped_as<QuantType::q5_k>(cudaStream_t, const GroupedCall&);
template void launch_grouped_as<QuantType::q6_k>(cudaStream_t, const GroupedCall&);
}  // namespace foresay::kernels::cuda
