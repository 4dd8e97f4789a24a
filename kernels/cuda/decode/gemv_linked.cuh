// kernels/cuda/decode/gemv_linked.cuh: the launch of the decode kernel of a rank's part (rank_link.h), of one
// quantisation type. Kernels of their own, so that those of one GPU have no code for others.
#pragma once

#include "kernels/cuda/decode/gemv_launch.cuh"

namespace foresay::kernels::cuda {

template <QuantType E, bool kMixes>
void launch_linked_as(const LinkedArgs& args, int processors, bool overlap, cudaStream_t stream) {
    const auto launch = [&](auto format) {
        if (args.rows > 8) {
            launch_gemv_kernel<E, 2, format, kMixes>(args, processors, overlap, stream);
        } else {
            launch_gemv_kernel<E, 1, format, kMixes>(args, processors, overlap, stream);
        }
    };
    if (has_cache_codes(args)) {
        launch(std::integral_constant<KvFormat, KvFormat::q8>());
    } else {
        launch(std::integral_constant<KvFormat, KvFormat::f16>());
    }
}

}  // namespace foresay::kernels::cuda
