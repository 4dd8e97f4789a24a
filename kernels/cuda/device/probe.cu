// A kernel that does nothing: a device for which this build has no code refuses even that. It is not launched;
// cudaFuncGetAttributes() fails when no compiled architecture fits the device.

#include "kernels/cuda/device/probe.h"

#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {
namespace {
__global__ void probe() {}
}  // namespace

int code_version(int device) {
    DeviceGuard guard(device);
    cudaFuncAttributes attributes{};
    if (cudaFuncGetAttributes(&attributes, probe) == cudaSuccess) return attributes.ptxVersion;
    cudaGetLastError();
    return 0;
}

}  // namespace foresay::kernels::cuda
