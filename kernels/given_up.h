// kernels/given_up.h: devices of this process that have not answered in time (kernels/list_ops.h). While one of them is
// still busy, freeing memory and ending the process the usual way would wait for it, for ever if it hangs: what is
// destroyed meanwhile leaves its memory to the system.
//
// Threads:  any.
// Cost:     an atomic read while there is none, else a query of each.
// Errors:   none.
#pragma once

namespace foresay::kernels {

// `busy(device)` says whether it still has work, without waiting. It is asked from now on, until it says no: `device`
// must live as long as the process.
void give_up_device(const void* device, bool (*busy)(const void* device));

// Whether one that was given up is still busy.
bool any_device_hangs() noexcept;

}  // namespace foresay::kernels
