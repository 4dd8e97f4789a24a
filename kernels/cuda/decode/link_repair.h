// kernels/cuda/decode/link_repair.h: a link (rank_link.h) after a launch that has not heard from all ranks in time.
//
// Threads:  the caller has nothing running on any of the devices but what such a launch has left, and no DeviceScope.
// Cost:     some milliseconds; mend() waits for what is left, which ends at kLinkPatience. Both read or write memory of
//           the devices, and belong into no forward that goes well.
// Errors:   Error: a device has failed, or there is no memory.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/cuda/decode/rank_link.h"
#include "kernels/cuda/device/device_context.h"

namespace foresay::kernels::cuda {

struct LinkEnd {
    RankLink* link = nullptr;
    DeviceContext* device = nullptr;
};

// The ranks that rank `own` of a link knows to have been late, bit by bit.
std::uint32_t late_ranks(const LinkEnd& end, std::int32_t own);
// Makes the ends of a link, in the order of the ranks, what they were when they were connected.
void mend(std::span<const LinkEnd> ranks);

}  // namespace foresay::kernels::cuda
