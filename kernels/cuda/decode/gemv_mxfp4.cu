// The decode kernels of MXFP4 weights (gemv_launch.cuh).
#include "kernels/cuda/decode/gemv_launch.cuh"

namespace foresay::kernels::cuda {
template void launch_gemv_as<QuantType::mxfp4>(const GemvArgs<kManySteps>&, int, bool, cudaStream_t);
}  // namespace foresay::kernels::cuda
