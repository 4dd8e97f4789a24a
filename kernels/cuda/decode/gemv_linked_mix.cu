// The decode kernels of linked ranks with K-quants, one type or several (gemv_linked.cuh).
#include "kernels/cuda/decode/gemv_linked.cuh"

namespace foresay::kernels::cuda {
template void launch_linked_as<kLargestOfMix, true>(const LinkedArgs&, int, bool, cudaStream_t);
}  // namespace foresay::kernels::cuda
