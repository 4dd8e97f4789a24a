// kernels/cuda/decode/rank_link.cuh: stores to all ranks, and waits that end (rank_link.h), for kernels.
#pragma once

#include "kernels/cuda/decode/flagged_words.cuh"
#include "kernels/cuda/decode/rank_link.h"

namespace foresay::kernels::cuda {

__device__ inline std::uint64_t global_time() {
    std::uint64_t now;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
    return now;
}

// A flagged word of this rank, and the same of all peers.
__device__ inline void store_to_all(const LinkTable* link, float* at, float value) {
    *at = value;
    const std::int32_t peers = __ldg(&link->peers);
#pragma unroll 1
    for (std::int32_t p = 0; p < peers; ++p) {
        float* const there = reinterpret_cast<float*>(reinterpret_cast<char*>(at) + __ldg(&link->to_peer[p]));
        asm volatile("st.relaxed.sys.global.f32 [%0], %1;" ::"l"(there), "f"(value) : "memory");
    }
}

// Whether a wait is to go on without what it waits for: one of this device has ended so, or the time that deadline()
// gives has come, which then ends all others, too.
template <class Deadline>
__device__ inline bool wait_ends(LinkTable* link, const Deadline& deadline) {
    std::uint32_t failed;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(failed) : "l"(&link->failed) : "memory");
    if (failed != 0) return true;
    const std::uint64_t end = deadline();
    if (global_time() < end) return false;
    asm volatile("st.relaxed.gpu.global.u32 [%0], 1;" ::"l"(&link->failed) : "memory");
    return true;
}

// The same for a wait that has looked `looks` times, by the launch's deadline. Seldom asks, because the answer comes
// from memory.
__device__ inline bool gives_up(LinkTable* link, std::uint32_t& looks) {
    if ((++looks & 1023u) != 0) return false;
    return wait_ends(link, [link] {
        std::uint64_t deadline;
        asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(deadline) : "l"(&link->deadline) : "memory");
        return deadline;
    });
}

// How long a kernel waits for flagged words. Of a device by itself: until they are there, and the object is nothing.
template <bool kLinked>
struct Patience {
    __device__ explicit Patience(LinkTable*) {}
    __device__ constexpr bool ends() { return false; }
};
template <>
struct Patience<true> {
    __device__ explicit Patience(LinkTable* of) : link(of) {}
    __device__ bool ends() { return gives_up(link, looks); }
    LinkTable* link;
    std::uint32_t looks = 0;
};

}  // namespace foresay::kernels::cuda
