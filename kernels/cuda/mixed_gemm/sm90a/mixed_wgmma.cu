// mixed_wgmma of the types that have it. Compiled for sm_90a alone (kernels/CMakeLists.txt).
#include "kernels/cuda/mixed_gemm/sm90a/mixed_wgmma.cuh"

namespace foresay::kernels::cuda {

template <QuantType E>
void launch_wgmma_as(const MixedArgs& args, int processors, cudaStream_t stream) {
    launch_overlapping("mixed_wgmma", mixed_wgmma<E>,
                       dim3(static_cast<unsigned>(std::min(args.plan.units, processors))), kGroupedThreads,
                       args.plan.shared_bytes, stream, args);
}
template void launch_wgmma_as<QuantType::q4_0>(const MixedArgs&, int, cudaStream_t);
template void launch_wgmma_as<QuantType::q8_0>(const MixedArgs&, int, cudaStream_t);

}  // namespace foresay::kernels::cuda
