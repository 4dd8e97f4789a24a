// The decode kernels of launches whose matrices have several K-quants (gemv_launch.cuh).
#include "kernels/cuda/decode/gemv_launch.cuh"

namespace foresay::kernels::cuda {

void launch_gemv_mix(const GemvArgs<kManySteps>& args, int processors, bool overlap, cudaStream_t stream) {
    const auto launch = [&](auto format) {
        if (args.rows > 8) {
            launch_gemv_kernel<kLargestOfMix, 2, format, true>(args, processors, overlap, stream);
        } else {
            launch_gemv_kernel<kLargestOfMix, 1, format, true>(args, processors, overlap, stream);
        }
    };
    if (has_cache_codes(args)) {
        launch(std::integral_constant<KvFormat, KvFormat::q8>());
    } else {
        launch(std::integral_constant<KvFormat, KvFormat::f16>());
    }
}

}  // namespace foresay::kernels::cuda
