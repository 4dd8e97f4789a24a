// kernels/cuda/device/probe.h: which code this build has for a device.
#pragma once

namespace foresay::kernels::cuda {

// The architecture that the kernels which run on the device were compiled for, 90 for compute_90: what __CUDA_ARCH__
// was, whatever the device could do. 0: this build has no code for it.
// Cost: starts the device's context the first time.
int code_version(int device);

}  // namespace foresay::kernels::cuda
