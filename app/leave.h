// app/leave.h: the end of a process one of whose GPUs hangs. The usual one waits for all GPUs.
#pragma once

namespace foresay::app {

// If a GPU that was given up is still busy (kernels/given_up.h), writes out what the log and the streams hold and ends
// the process with this status, without what exit() does. Returns if there is none. Comes after all is saved.
void leave_if_a_device_hangs(int status);

}  // namespace foresay::app
