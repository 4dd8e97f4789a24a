// kernels/cuda/device/wgmma_operands.cuh: descriptors of operands B of wgmma (wgmma.cuh), which lie in shared memory.
//
// Layout:   8 inputs x 8 columns are 128 bytes in a row, [column][input]. A descriptor has the address and the bytes to
//           the next 8 inputs and to the next 8 columns, all in units of 16 bytes.
#pragma once

#include <cstdint>

namespace foresay::kernels::cuda {

// In a cluster, a shared-memory address also says which CTA it belongs to, above the 18 bits that count here.
__device__ inline std::uint64_t wgmma_operand(std::uint32_t address, std::uint32_t inputs, std::uint32_t columns) {
    return (std::uint64_t{address & 0x3ffff} >> 4) | (std::uint64_t{inputs >> 4} << 16) |
           (std::uint64_t{columns >> 4} << 32);
}

// Operands that lie a multiple of 16 bytes after one another. Their descriptors differ by an addition: whole ones, each
// worked out between two products, were a fifth of the instructions of a small tile.
class WgmmaOperands {
public:
    __device__ WgmmaOperands(std::uint32_t address, std::uint32_t inputs, std::uint32_t columns)
        : low_(static_cast<std::uint32_t>(wgmma_operand(address, inputs, 0))),
          high_(columns >> 4),
          next_(inputs >> 4) {}
    __device__ std::uint64_t at(std::uint32_t bytes) const { return descriptor(low_ + bytes / 16); }
    // Its next 8 inputs are the same ones again.
    __device__ std::uint64_t repeated_at(std::uint32_t bytes) const {
        return descriptor(low_ + bytes / 16 - (next_ << 16));
    }

private:
    std::uint32_t low_, high_, next_;
    __device__ std::uint64_t descriptor(std::uint32_t low) const { return std::uint64_t{high_} << 32 | low; }
};

}  // namespace foresay::kernels::cuda
