// plugins/host/isolated.h: runs the functions of a sampler in a process of its own, so that a crash, an endless loop or
// a leak costs that process and not the program.
//
// Data flow: each instance has a process, forked when it is made, and a piece of shared memory. A call writes its
//           arguments there, hands over by a futex, spins for a moment and then sleeps; the answer comes back the same
//           way. The history of a text is sent once and then only grows.
// Limits:   the process has no files and no network (seccomp), no descriptors but standard error, and 1 GiB more memory
//           than it begins with. A sampler with a parameter of type FILE gets the first limit once it has been made.
//           The library itself is loaded in this process, too: what it does while it is loaded is not isolated.
// Failure:  a call that crashes, or takes longer than the deadline, ends the process and returns the reason, as any
//           failure. The next text begins with a new process.
// Threads:  those of a stage. Calls of one instance follow one another.
// Cost:     9 us a call, with 512 candidates and two busy cores; Isolated.WhatACallCosts prints it.
// Errors:   create() throws Error where no process can be made, or where the sampler refuses its parameters.
#pragma once

#include <chrono>
#include <memory>

#include "samplers/stage.h"

namespace foresay::plugins {

std::shared_ptr<const samplers::StageFactory> isolate(std::shared_ptr<const samplers::StageFactory> factory,
                                                      std::chrono::milliseconds deadline);

}  // namespace foresay::plugins
