// The decode kernels of linked ranks with Q8_0 weights (gemv_linked.cuh).
#include "kernels/cuda/decode/gemv_linked.cuh"

namespace foresay::kernels::cuda {
template void launch_linked_as<QuantType::q8_0, false>(const LinkedArgs&, int, bool, cudaStream_t);
}  // namespace foresay::kernels::cuda
