// kernels/cpu/arena.h: memory for packed weights and KV caches: few large mappings, with huge pages where the system
// grants them. Streaming weights would otherwise touch a new page, and miss the TLB, every few hundred nanoseconds.
//
// Layout:   every allocation is aligned to 64 bytes and zeroed.
// Threads:  one caller at a time.
// Errors:   throws Error when the system has no memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace foresay::kernels::cpu {

// A piece of an arena's mapping. The mapping is released with its last block.
struct Block {
    std::shared_ptr<void> owner;
    std::byte* data = nullptr;
    std::int64_t bytes = 0;
};

class Arena {
public:
    Block allocate(std::int64_t bytes);
    // A separate mapping, released with the block.
    static Block allocate_alone(std::int64_t bytes);

private:
    Block chunk_;            // the mapping that allocations are cut from
    std::int64_t used_ = 0;  // bytes of chunk_ in use
};

}  // namespace foresay::kernels::cpu
