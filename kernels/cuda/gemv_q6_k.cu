#include "kernels/cuda/gemv_launch.cuh"

namespace foresay::kernels::cuda {
template void launch_gemv_as<Encoding::q6_k>(const GemvArgs& args, int processors, bool overlap, cudaStream_t stream);
}  // namespace foresay::kernels::cuda
