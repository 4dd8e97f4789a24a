// kernels/host_threads.h: the threads of a backend that computes on the host, for the host's own work between two
// forwards, such as sampling.
//
// Threads:  the one that calls the backend.
// Cost:     waking the threads, once; no allocation.
#pragma once

#include <cstdint>
#include <functional>

#include "kernels/ops.h"

namespace foresay::kernels {

// Calls body(i) for each i in [0, items): on the threads of `ops` where it is the CPU backend, several at once and in
// no order; else one after the other. `body` must not throw, nor call the backend. Returns when all are done.
void for_each_on_host(Ops& ops, std::int32_t items, const std::function<void(std::int32_t)>& body);

}  // namespace foresay::kernels
