// The decode kernels of Q4_K weights (gemv_launch.cuh).
#include "kernels/cuda/decode/gemv_launch.cuh"

namespace foresay::kernels::cuda {
template void launch_gemv_as<QuantType::q4_k>(const GemvArgs<kManySteps>&, int, bool, cudaStream_t);
}  // namespace foresay::kernels::cuda
