// kernels/cuda/device/peer_words.h: whether words cross between two devices as they should (peer_pattern.h).
#pragma once

namespace foresay::kernels::cuda {

// Tries copies, loads and stores by the current device in the memory of device `other`, to which it has access. False:
// words have not arrived as they were, or not within two seconds, or the device has refused. Some milliseconds. Needs a
// DeviceScope; nothing else runs on `other` in the memory that it takes there.
bool peer_words_arrive(int other);

}  // namespace foresay::kernels::cuda
