// kernels/cuda/device/read_bandwidth.h: what the device's memory gives to a plain read.
#pragma once

#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

// Bytes per second over a buffer far larger than the caches, or as large as there is room for; 0 when there is none.
// Cost: some milliseconds, and an allocation.
double measure_read_bandwidth(const Stream& stream);

}  // namespace foresay::kernels::cuda
