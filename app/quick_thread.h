// app/quick_thread.h: threads that wake for a moment while others compute on every core.
#pragma once

namespace foresay::app {

// Asks the scheduler to let the calling thread run at once when it wakes, for short turns, or to treat it like any
// other again. Its share of the processor stays the same. Kernels that cannot do it (Linux before 6.12) ignore it.
void run_at_once(bool wanted);

}  // namespace foresay::app
