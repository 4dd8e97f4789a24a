// kernels/cuda/gemv_launch.cuh: the launch of the decode kernel of one encoding. Each gemv_<encoding>.cu is one line that
// instantiates it, so that encodings compile side by side.
#pragma once

#include "kernels/cuda/device.h"
#include "kernels/cuda/gemv.cuh"

namespace foresay::kernels::cuda {

// Sets the attributes of a kernel once per device and launches it.
template <class Kernel>
void launch_clusters(Kernel kernel, const GemvArgs& args, int blocks, bool overlap, cudaStream_t stream) {
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.shared_bytes),
               "cannot have the shared memory");
    // Kernels overlap on a multiprocessor only when they agree on how its memory is divided.
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
               "cannot choose the division of memory");
    cudaLaunchAttribute attributes[2] = {};
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(kGemvWarps * 32);
    config.dynamicSmemBytes = static_cast<std::size_t>(args.shared_bytes);
    config.stream = stream;
    config.attrs = attributes;
    if (overlap) {
        attributes[config.numAttrs].id = cudaLaunchAttributeProgrammaticStreamSerialization;
        attributes[config.numAttrs++].val.programmaticStreamSerializationAllowed = 1;
    }
    if (args.split > 1) {
        attributes[config.numAttrs].id = cudaLaunchAttributeClusterDimension;
        attributes[config.numAttrs].val.clusterDim.x = static_cast<unsigned>(args.split);
        attributes[config.numAttrs].val.clusterDim.y = 1;
        attributes[config.numAttrs++].val.clusterDim.z = 1;
    }
    cuda_check(cudaLaunchKernelEx(&config, kernel, args), "cannot launch gemv");
}

template <Encoding E>
void launch_gemv_as(const GemvArgs& args, int processors, bool overlap, cudaStream_t stream) {
    const int clusters = std::min(args.panel_count, std::max(1, processors / args.split));
    const int blocks = clusters * args.split;
    if (args.split > 1) {
        args.rows > 8 ? launch_clusters(gemv<E, 2, true>, args, blocks, overlap, stream)
                      : launch_clusters(gemv<E, 1, true>, args, blocks, overlap, stream);
    } else {
        args.rows > 8 ? launch_clusters(gemv<E, 2, false>, args, blocks, overlap, stream)
                      : launch_clusters(gemv<E, 1, false>, args, blocks, overlap, stream);
    }
}

}  // namespace foresay::kernels::cuda
