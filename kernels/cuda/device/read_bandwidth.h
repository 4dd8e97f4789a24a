// kernels/cuda/device/read_bandwidth.h: the bandwidth of a plain read of the device's memory.
#pragma once

#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

// Bytes per second over a buffer far larger than the caches, or as large as there is room for; 0 when there is none.
// Cost: some milliseconds, and an allocation.
double measure_read_bandwidth(const Stream& stream);

}  // namespace foresay::kernels::cuda
