// kernels/cuda/attention/flash_prefill.h: attention of many prefill rows, which reads keys and values from shared
// memory (flash_prefill.cu).
//
// Bits:     those of launch_attend_prefill(), so either may run, by speed alone.
// Limits:   no trees, no capped scores, no sinks, heads of 64 to 256 values; float16; devices with bulk copies and 200
//           KiB of shared memory (sm_90 and sm_100).
// Errors:   launch_flash_prefill throws Error.
#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

// Whether this kernel can do what the call describes.
bool can_flash_prefill(const AttendCall& call, const DeviceInfo& device);

// `processors`: multiprocessors of the device; how tiles are divided between CTAs follows from it, and no bit does.
void launch_flash_prefill(cudaStream_t stream, const AttendCall& call, int processors);

}  // namespace foresay::kernels::cuda
