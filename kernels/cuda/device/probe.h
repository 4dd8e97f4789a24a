// kernels/cuda/device/probe.h: whether this build has machine code for a device.
#pragma once

namespace foresay::kernels::cuda {

// Cost: starts the device's context the first time.
bool has_code_for(int device);

}  // namespace foresay::kernels::cuda
