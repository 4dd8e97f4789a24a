// kernels/cuda/device/launch.cuh: the launch of a kernel that may begin before its predecessor on the stream has ended.
//
// Overlap:  a kernel launched so calls allow_successor() at its start, and await_predecessors() before it reads or
//           writes anything that other kernels of a forward touch (kernels/cuda/device/async.cuh). What it reads then
//           comes from L2 (__ldcg): lines in L1 may be older.
#pragma once

#include <utility>

#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

template <class... Params, class... Args>
void launch_overlapping(const char* name, void (*kernel)(Params...), dim3 grid, int threads, int shared_bytes,
                        cudaStream_t stream, Args&&... args) {
    if (shared_bytes > 48 * 1024) {
        cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes), name);
    }
    // Kernels share a multiprocessor only when they agree on how its memory is divided into L1 and shared memory.
    cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        name);
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = grid;
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<std::size_t>(shared_bytes);
    config.stream = stream;
    config.attrs = &attribute;
    // Code for devices before 9.0 does not wait for its predecessors, so it must not start early on any device.
    cudaFuncAttributes attributes = {};
    cuda_check(cudaFuncGetAttributes(&attributes, kernel), name);
    config.numAttrs = attributes.ptxVersion >= 90 ? 1 : 0;
    launch_check(cudaLaunchKernelEx(&config, kernel, std::forward<Args>(args)...), name);
}

}  // namespace foresay::kernels::cuda
