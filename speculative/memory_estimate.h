// speculative/memory_estimate.h: how much memory a model and its context will take, before any weight is loaded.
//
// Errors:   require_memory() throws Error with the numbers when it cannot fit.
#pragma once

#include <cstdint>
#include <string>

#include "core/models/context.h"
#include "core/models/model_source.h"

namespace foresay::speculative {

// Bytes.
struct MemoryEstimate {
    std::int64_t weights = 0;  // packed weights
    std::int64_t mapped = 0;   // the model file, mapped: the system may drop it under pressure
    std::int64_t cache = 0;    // the KV cache
    std::int64_t activations = 0;
    std::int64_t total() const { return weights + cache + activations; }
    MemoryEstimate& operator+=(const MemoryEstimate& other);
};

MemoryEstimate estimate_memory(core::ModelSource& source, const core::ContextOptions& options, const kernels::Ops& ops);

// Bytes that this process may still take: free and reclaimable memory of the machine, or of its control group.
std::int64_t available_memory();

// "12.3 GiB"
std::string format_bytes(std::int64_t bytes);

// Throws when `estimate` exceeds `available`. The message names `what` and `whose` memory it is.
void require_memory(const MemoryEstimate& estimate, std::int64_t available, const std::string& what,
                    const std::string& whose = "memory");

}  // namespace foresay::speculative
