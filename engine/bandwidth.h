// engine/bandwidth.h: how fast a backend reads memory.
#pragma once

#include "kernels/ops.h"

namespace foresay::engine {

// Read bandwidth in bytes per second: of the backend's device, or of as many CPU threads as the backend uses, from a
// buffer far larger than any cache; 0 where there is no memory for that. Any thread.
// Takes about a quarter of a second, once in a process for backends that describe themselves alike.
double read_bandwidth(kernels::Ops& ops);

}  // namespace foresay::engine
