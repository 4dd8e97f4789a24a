// plugins/host/isolated_child.h: the process of an isolated sampler: started by the program, shut off, and at work.
//
// Limits:   no files and no network (seccomp allows what computing needs, and standard error), no descriptors but
//           standard error, no processes and threads, and kIsolatedMemory more memory than it begins with.
// Life:     it ends with the program, however that ends. Signals that ask the program to end do not reach it.
// Errors:   a sampler that crashes ends the process.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>

#include "plugins/host/isolated_memory.h"
#include "samplers/stage.h"

namespace foresay::plugins {

inline constexpr std::uint64_t kIsolatedMemory = std::uint64_t{1} << 30;

// The pages of memory that a process has, by /proc; 0 where that cannot be read.
std::uint64_t memory_pages(const char* process);

// A process that makes a stage and answers calls until it is ended. What it is given must stay until this returns.
// Returns its id; -1: errno says why there is none.
pid_t start_isolated(const IsolatedMemory& memory, const samplers::StageFactory& factory,
                     std::span<const samplers::ParameterValue> parameters, const samplers::Vocabulary& vocabulary);

}  // namespace foresay::plugins
