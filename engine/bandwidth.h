// engine/bandwidth.h: how fast a backend reads memory.
#pragma once

#include "kernels/ops.h"

namespace foresay::engine {

// Read bandwidth in bytes per second: of the backend's device, or of as many CPU threads as the backend uses, from a
// buffer far larger than any cache. Takes about a quarter of a second.
double read_bandwidth(kernels::Ops& ops);

}  // namespace foresay::engine
