// kernels/cuda/attention/attention_choice.h: which of the kernels of attention runs. All forms of decode rows have the
// same bits, and so have both of prefill rows, so this is a matter of speed alone.
#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

// Whether decode rows attend by launch_flash_decode(), and prefill rows by launch_flash_prefill(), instead of the older
// forms. `reach`: positions that the launch covers. `together`: as of launch_flash_decode().
bool takes_flash_decode(const AttendCall& call, const DeviceInfo& device, std::int32_t reach, std::int32_t together);
bool takes_flash_prefill(const AttendCall& call, const DeviceInfo& device);

// For tests and measurements, of this process: by speed, or flash attention never, or wherever it can run. Before the
// first forward.
enum class FlashAttention : std::uint8_t { by_speed, never, always };
void choose_flash_attention(FlashAttention choice);

}  // namespace foresay::kernels::cuda
