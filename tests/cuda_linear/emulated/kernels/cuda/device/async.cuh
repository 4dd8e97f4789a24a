// tests/cuda_linear/emulated/kernels/cuda/device/async.cuh: shared memory and meetings, by emulation.h. Nothing is
// copied in the background, so nothing is waited for.
#pragma once

#include "tests/cuda_linear/emulated/emulation.h"

namespace foresay::kernels::cuda {

namespace emulated = foresay::test::emulated;

inline std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(static_cast<const std::byte*>(pointer) - emulated::shared_memory);
}
inline std::uint32_t thread_index() { return static_cast<std::uint32_t>(emulated::number()); }
inline void allow_successor() {}
inline void await_predecessors() {}
inline void mbarrier_init(std::uint32_t, std::uint32_t) {}
inline void mbarrier_wait(std::uint32_t, std::uint32_t) {}
inline bool mbarrier_test(std::uint32_t, std::uint32_t) { return true; }
inline void mbarrier_arrive_warp(std::uint32_t) {}
inline void copy_barrier_init(std::uint32_t) {}
inline void copy_barriers_ready() {}
inline void bulk_copy(std::uint32_t, const void*, std::uint32_t, std::uint32_t, int) {}
inline constexpr std::uint32_t kWarpArrivals = 1;

// A device traps where an address is not a multiple of what is read.
inline std::byte* shared_place(std::uint32_t address, std::size_t bytes) {
    if (address % bytes != 0 || address + bytes > sizeof emulated::shared_memory) std::abort();
    return emulated::shared_memory + address;
}
template <class T>
T load_shared(std::uint32_t address) {
    T value;
    std::memcpy(&value, shared_place(address, sizeof value), sizeof value);
    return value;
}
inline uint4 load_shared4(std::uint32_t address) { return load_shared<uint4>(address); }
inline int load_shared1(std::uint32_t address) { return load_shared<int>(address); }
inline void load_shared2(std::uint32_t& a, std::uint32_t& b, std::uint32_t address) {
    const auto both = load_shared<uint2>(address);
    a = both.x;
    b = both.y;
}
inline void store_shared1(std::uint32_t address, float value) {
    std::memcpy(shared_place(address, sizeof value), &value, sizeof value);
}
inline void store_shared2(std::uint32_t address, uint2 value) {
    std::memcpy(shared_place(address, sizeof value), &value, sizeof value);
}

}  // namespace foresay::kernels::cuda
