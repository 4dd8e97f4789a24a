#include "kernels/cuda/gemv_launch.cuh"

namespace foresay::kernels::cuda {
template void launch_gemv_as<Encoding::f16>(const GemvArgs& args, int processors, bool overlap, cudaStream_t stream);
}  // namespace foresay::kernels::cuda
