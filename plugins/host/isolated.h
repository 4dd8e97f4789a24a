// plugins/host/isolated.h: runs the functions of a sampler in a process of its own, so that a crash, an endless loop or
// a leak costs that process and not the program.
//
// Data flow: an instance has one process, whatever the number of texts, and a piece of shared memory
//           (isolated_memory.h). A call writes its arguments there, hands over by a futex, spins for a moment and then
//           sleeps; the answer comes back the same way. The history of a text is sent once and then only grows. What
//           a sampler that tests accepts is told with its next call, so that a token of a text is one call, and tokens
//           of a draft are none where the draft does not ask.
// Limits:   those of isolated_child.h. The library itself is loaded in this process, too: what it does while it is
//           loaded is not isolated.
// Failure:  a call that crashes, takes longer than the deadline, or fails when the process has used up its memory ends
//           the process and returns the reason, as any failure. The next call begins another process, in which states
//           are made again from what they were told, so that a failure concerns one token of one text. After
//           kMostEnds of them a text goes on without the sampler, which then fails at every token. A process that ends
//           in a draft changes no text: its copies of the states fail until the text ends.
// Threads:  those of a stage. Calls of one instance follow one another.
// Cost:     9 us a call, with 512 candidates and two busy cores; Isolated.WhatACallCosts prints it. To start a process
//           takes a few milliseconds.
// Errors:   create() throws Error where no process can be made, or where the sampler refuses its parameters.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>

#include "samplers/stage.h"

namespace foresay::plugins {

std::shared_ptr<const samplers::StageFactory> isolate(std::shared_ptr<const samplers::StageFactory> factory,
                                                      std::chrono::milliseconds deadline);

// Calls that this process has made to samplers in processes of their own.
std::int64_t isolated_calls();

}  // namespace foresay::plugins
