// The decode kernels of float16 weights (gemv_launch.cuh).
#include "kernels/cuda/decode/gemv_launch.cuh"

namespace foresay::kernels::cuda {
template void launch_gemv_as<QuantType::f16>(const GemvArgs<kManySteps>&, int, bool, cudaStream_t);
}  // namespace foresay::kernels::cuda
