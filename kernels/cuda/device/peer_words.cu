// One kernel moves words for all three ways: from a peer, to a peer. Copies are the driver's.
#include <chrono>
#include <thread>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/device/peer_pattern.h"
#include "kernels/cuda/device/peer_words.h"

namespace foresay::kernels::cuda {
namespace {

constexpr std::chrono::seconds kPatience{2};
constexpr std::size_t kBytes = kPatternWords * sizeof(std::uint32_t);

// As linked ranks store and mixtures load: plain accesses of words.
__global__ void move_words(const std::uint32_t* from, std::uint32_t* to) {
    const std::size_t i = blockIdx.x * std::size_t{blockDim.x} + threadIdx.x;
    if (i >= kPatternWords) return;
    std::uint32_t word;
    asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(word) : "l"(from + i) : "memory");
    asm volatile("st.relaxed.sys.global.u32 [%0], %1;" ::"l"(to + i), "r"(word) : "memory");
}

// Whether the stream gets through what it has in time, and without an error.
bool ends(const Stream& stream) {
    const auto end = std::chrono::steady_clock::now() + kPatience;
    for (;;) {
        const cudaError_t status = cudaStreamQuery(stream);
        if (status != cudaErrorNotReady) return status == cudaSuccess;
        if (std::chrono::steady_clock::now() >= end) return false;
        std::this_thread::yield();
    }
}

// Words of the memory `from` to `to`, one of the current device and one of `other`, by cross(from, to) on `stream`.
template <class Cross>
bool arrive(std::uint32_t way, const DeviceBuffer<std::uint32_t>& from, const DeviceBuffer<std::uint32_t>& to,
            const Stream& stream, const Cross& cross) {
    // Each device writes and reads its own memory, so that nothing else crosses.
    const auto copy = [](void* into, const void* of, cudaMemcpyKind kind, int device) {
        const DeviceGuard guard(device);
        return cudaMemcpy(into, of, kBytes, kind) == cudaSuccess && cudaStreamSynchronize(nullptr) == cudaSuccess;
    };
    return pattern_arrives(way, [&](const auto& words, auto& arrived) {
        if (!copy(from.data(), words.data(), cudaMemcpyHostToDevice, from.device())) return false;
        if (!copy(to.data(), arrived.data(), cudaMemcpyHostToDevice, to.device())) return false;
        cross(from.data(), to.data());
        return cudaGetLastError() == cudaSuccess && ends(stream) &&
               copy(arrived.data(), to.data(), cudaMemcpyDeviceToHost, to.device());
    });
}

}  // namespace

bool peer_words_arrive(int other) {
    const Stream stream;
    DeviceBuffer<std::uint32_t> own(kPatternWords), there;
    {
        const DeviceGuard guard(other);
        there = DeviceBuffer<std::uint32_t>(kPatternWords);
    }
    const auto copy = [&](const std::uint32_t* from, std::uint32_t* to) {
        cudaMemcpyAsync(to, from, kBytes, cudaMemcpyDefault, stream);
    };
    const auto move = [&](const std::uint32_t* from, std::uint32_t* to) {
        constexpr unsigned kThreads = 256;
        move_words<<<kPatternWords / kThreads, kThreads, 0, stream>>>(from, to);
    };
    if (arrive(1, there, own, stream, copy) && arrive(2, there, own, stream, move) &&
        arrive(3, own, there, stream, move)) {
        return true;
    }
    cudaGetLastError();  // else the next launch would report it
    // To free memory that is still at work would wait for ever.
    if (cudaStreamQuery(stream) == cudaErrorNotReady) {
        static_cast<void>(new DeviceBuffer<std::uint32_t>(std::move(own)));
        static_cast<void>(new DeviceBuffer<std::uint32_t>(std::move(there)));
    }
    return false;
}

}  // namespace foresay::kernels::cuda
