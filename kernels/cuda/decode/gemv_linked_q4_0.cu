// The decode kernels of linked ranks with Q4_0 weights (gemv_linked.cuh).
#include "kernels/cuda/decode/gemv_linked.cuh"

namespace foresay::kernels::cuda {
template void launch_linked_as<QuantType::q4_0, false>(const LinkedArgs&, int, bool, cudaStream_t);
}  // namespace foresay::kernels::cuda
