// kernels/cuda/gemv_launch.cuh: the launch of the decode kernel of one encoding. Each gemv_<encoding>.cu is one line that
// instantiates it, so that encodings compile side by side.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/gemv.cuh"

namespace foresay::kernels::cuda {

template <Encoding E>
void launch_gemv_as(const GemvArgs& args, int processors, bool overlap, cudaStream_t stream) {
    const auto kernel = args.rows > 8 ? gemv<E, 2> : gemv<E, 1>;
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.shared_bytes),
               "cannot have the shared memory");
    // Kernels overlap on a multiprocessor only when they agree on how its memory is divided.
    cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        "cannot choose the division of memory");
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(processors));
    config.blockDim = dim3(gemv_warps(E) * 32);
    config.dynamicSmemBytes = static_cast<std::size_t>(args.shared_bytes);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlap ? 1 : 0;
    cuda_check(cudaLaunchKernelEx(&config, kernel, args), "cannot launch gemv");
}

}  // namespace foresay::kernels::cuda
