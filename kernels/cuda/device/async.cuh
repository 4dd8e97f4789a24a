// kernels/cuda/device/async.cuh: wrappers of the few instructions that CUDA C++ has no plain function for: overlap of
// kernels, bulk copies into shared memory that complete on an mbarrier, barriers of warps.
//
// Layout:   shared-memory addresses are 32-bit, as the instructions want them (shared_address).
// mbarrier: `count` arrivals complete a phase; phases alternate between parity 0 and 1. A waiter names the parity of
//           the phase it waits for, so no waiter may be more than one phase late.
// Fallback: before sm_90 kernels do not overlap, and a bulk copy is 16-byte copies by all lanes of a warp.
#pragma once

#include <cstdint>

namespace foresay::kernels::cuda {

__device__ inline std::uint32_t shared_address(const void* pointer) {
    return static_cast<std::uint32_t>(__cvta_generic_to_shared(pointer));
}

// threadIdx.x, asked for each time, so that nothing derived from it takes a register in between.
__device__ inline std::uint32_t thread_index() {
    std::uint32_t x;
    asm volatile("mov.u32 %0, %%tid.x;" : "=r"(x));
    return x;
}

// True in one thread of a warp, which calls it together. Cheaper than comparing the thread's number.
__device__ inline bool elect_one() {
#if __CUDA_ARCH__ >= 900
    std::uint32_t chosen;
    asm volatile(
        "{\n"
        ".reg .pred chosen;\n"
        "elect.sync _|chosen, 0xffffffff;\n"
        "selp.u32 %0, 1, 0, chosen;\n"
        "}"
        : "=r"(chosen));
    return chosen != 0;
#else
    return thread_index() % 32 == 0;
#endif
}

// Lets the next kernel of the stream start as soon as there is room for it.
__device__ inline void allow_successor() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}
// Waits until every kernel before this one is done and what it wrote can be read.
__device__ inline void await_predecessors() {
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Waits until kThreads threads, whole warps, are at barrier kNumber of the CTA. Number 0 is __syncthreads().
template <int kNumber, int kThreads>
__device__ inline void named_barrier() {
    asm volatile("bar.sync %0, %1;" ::"n"(kNumber), "n"(kThreads) : "memory");
}

// An mbarrier of warps: `count` arrivals complete a phase, and what was written before them can be read after
// mbarrier_wait().
__device__ inline void mbarrier_init(std::uint32_t barrier, std::uint32_t count) {
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}
__device__ inline void mbarrier_arrive(std::uint32_t barrier) {
    asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}
// An arrival of a warp is one lane's, after a __syncwarp(). compute-sanitizer does not follow that, so with
// FORESAY_RACECHECK every lane arrives for itself.
#ifdef FORESAY_RACECHECK
inline constexpr std::uint32_t kWarpArrivals = 32;
#else
inline constexpr std::uint32_t kWarpArrivals = 1;
#endif
__device__ inline void mbarrier_arrive_warp(std::uint32_t barrier) {
    __syncwarp();
    if (kWarpArrivals == 32 || elect_one()) mbarrier_arrive(barrier);
}
// An mbarrier on which the bulk copies of one warp complete: by bytes from sm_90 on, else by an arrival of each lane.
__device__ inline void copy_barrier_init(std::uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
    mbarrier_init(barrier, 1);
#else
    mbarrier_init(barrier, 32);
#endif
}
// After the barriers of a ring are initialised, before the first bulk copy: makes them visible to the copy engine (the
// async proxy).
__device__ inline void copy_barriers_ready() {
#if __CUDA_ARCH__ >= 900
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
    __syncwarp();
}

// A warp's copies of 16 bytes, which take the place of bulk copies before sm_90.
__device__ inline void copy_by_lanes(std::uint32_t to, const void* from, std::uint32_t bytes, int lane) {
    for (std::uint32_t at = 16u * static_cast<std::uint32_t>(lane); at < bytes; at += 512u) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at),
                     "l"(static_cast<const char*>(from) + at)
                     : "memory");
    }
}

// Streams `bytes` (a multiple of 16) from global to shared memory; all lanes of the warp call it. Weights are read once
// per forward, so the L2 should drop them first.
__device__ inline void bulk_copy(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier,
                                 int lane) {
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
        constexpr std::uint64_t evict_first = 0x12f0000000000000;  // as createpolicy makes it
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], "
            "%4;" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier), "l"(evict_first)
            : "memory");
    }
#else
    copy_by_lanes(to, from, bytes, lane);
    asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(barrier) : "memory");
#endif
}
// The same for bytes that complete together with those of the bulk_copy() that follows on the same barrier. Others read
// them again, so the L2 keeps them.
__device__ inline void bulk_copy_ahead(std::uint32_t to, const void* from, std::uint32_t bytes, std::uint32_t barrier,
                                       int lane) {
#if __CUDA_ARCH__ >= 900
    if (lane == 0) {
        asm volatile("mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
            "l"(from), "r"(bytes), "r"(barrier)
            : "memory");
    }
#else
    copy_by_lanes(to, from, bytes, lane);
#endif
}
// Whether the phase with that parity is complete.
__device__ inline bool mbarrier_test(std::uint32_t barrier, std::uint32_t parity) {
    std::uint32_t done;
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "mbarrier.test_wait.parity.shared.b64 done, [%1], %2;\n"
        "selp.u32 %0, 1, 0, done;\n"
        "}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
    return done != 0;
}
// Waits until the phase with that parity is complete. The hardware suspends the warp meanwhile, for at most the given
// time; polling would take issue slots from other warps.
__device__ inline void mbarrier_wait(std::uint32_t barrier, std::uint32_t parity) {
#if __CUDA_ARCH__ >= 900
    asm volatile(
        "{\n"
        ".reg .pred done;\n"
        "again:\n"
        "mbarrier.try_wait.parity.shared.b64 done, [%0], %1, %2;\n"
        "@!done bra again;\n"
        "}" ::"r"(barrier),
        "r"(parity), "n"(1000000)
        : "memory");
#else
    while (!mbarrier_test(barrier, parity)) {
    }
#endif
}

// Volatile, so that these loads keep their order with the waits above.
__device__ inline uint4 load_shared4(std::uint32_t address) {
    uint4 value;
    asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
                 : "r"(address));
    return value;
}
__device__ inline int load_shared1(std::uint32_t address) {
    int value;
    asm volatile("ld.shared.u32 %0, [%1];" : "=r"(value) : "r"(address));
    return value;
}
__device__ inline void store_shared2(std::uint32_t address, uint2 value) {
    asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(address), "r"(value.x), "r"(value.y) : "memory");
}
__device__ inline void store_shared1(std::uint32_t address, float value) {
    asm volatile("st.shared.f32 [%0], %1;" ::"r"(address), "f"(value) : "memory");
}
__device__ inline void load_shared2(std::uint32_t& a, std::uint32_t& b, std::uint32_t address) {
    asm volatile("ld.shared.v2.u32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(address));
}

}  // namespace foresay::kernels::cuda
