// kernels/cuda/attention/flash_decode.h: attention of decode rows after long contexts, as a kernel of its own that
// reads keys and values once for all rows of a sequence (flash_decode.cu).
//
// Bits:     those of attend_group() (decode_attention.cuh): the same products in the same order. So what launches a
//           forward may choose either form by speed alone.
// Limits:   no trees, no capped scores and no sinks; heads padded to 64 or 128; devices with bulk copies and 200 KiB of
//           shared memory (sm_90 and sm_100).
// Errors:   launch_flash_decode throws Error.
#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

inline constexpr std::int32_t kMostTogether = 4;      // tiles that share what is read
inline constexpr std::int32_t kMostFlashTiles = 512;  // of a launch
inline constexpr std::size_t kTakenCounters = 4;      // that AttendCall::taken points to, 0 between launches

// Whether this kernel can do what the call describes.
bool can_flash_decode(const AttendCall& call, const DeviceInfo& device);

// `call.partial` has attend_partial_floats() floats of any value, which no other launch that may run at the same time
// uses; it must not be that of launch_attend_decode(), whose words have to stay as they are.
// `together`: the most neighbouring tiles that any sequence of the batch has, at most kMostTogether are used. It
// decides which variant runs, nothing else: any number is correct.
void launch_flash_decode(cudaStream_t stream, const AttendCall& call, std::int32_t together);

}  // namespace foresay::kernels::cuda
