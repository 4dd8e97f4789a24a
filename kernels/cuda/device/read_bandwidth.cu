// Reads a buffer far larger than the caches several times and reports the best pass. The best one, because other work
// on the device can only make a pass slower.

#include "kernels/cuda/device/read_bandwidth.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::kernels::cuda {
namespace {

constexpr int kThreads = 1024;
constexpr int kLoads = 8;  // of a thread at once
constexpr int kPasses = 8;

// kLoads independent 16-byte loads per thread and iteration: enough bytes in flight to hide the latency.
// Neighbouring threads read neighbouring 16 bytes. What is left over at the end of the buffer is not read.
__global__ void read_kernel(const uint4* data, std::size_t count, unsigned* sink) {
    const std::size_t stride = static_cast<std::size_t>(gridDim.x) * kThreads * kLoads;
    unsigned sum = 0;
    for (std::size_t at = static_cast<std::size_t>(blockIdx.x) * kThreads * kLoads + threadIdx.x;
         at + (kLoads - 1) * kThreads < count; at += stride) {
        uint4 values[kLoads];
#pragma unroll
        for (int i = 0; i < kLoads; ++i) values[i] = __ldcs(data + at + static_cast<std::size_t>(i) * kThreads);
#pragma unroll
        for (int i = 0; i < kLoads; ++i) sum += values[i].x ^ values[i].y ^ values[i].z ^ values[i].w;
    }
    if (sum == 0x12345679u) *sink = sum;  // never; keeps the loads
}

}  // namespace

double measure_read_bandwidth(const Stream& stream) {
    std::size_t free = 0, total = 0;
    cuda_check(cudaMemGetInfo(&free, &total), "cannot ask for free memory");
    // At most a quarter of what is free: models may be loaded. Below 256 MiB the L2 would flatter the result.
    const std::size_t bytes = std::min<std::size_t>(std::size_t{8} << 30, free / 4) / 4096 * 4096;
    if (bytes < (std::size_t{256} << 20)) return 0.0;
    const DeviceBuffer<uint4> data(bytes / sizeof(uint4));
    const DeviceBuffer<unsigned> sink(1);
    cuda_check(cudaMemsetAsync(data.data(), 0x5a, bytes, stream), "cannot fill memory");
    cudaEvent_t begin = nullptr, end = nullptr;
    cuda_check(cudaEventCreate(&begin), "cannot make an event");
    cuda_check(cudaEventCreate(&end), "cannot make an event");
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    const DeviceInfo info = device_info(device);
    double best = 0.0;
    for (int pass = 0; pass < kPasses; ++pass) {
        cuda_check(cudaEventRecord(begin, stream), "cannot record an event");
        read_kernel<<<static_cast<unsigned>(2 * info.processors), kThreads, 0, stream>>>(data.data(), data.size(),
                                                                                         sink.data());
        launched("read");
        cuda_check(cudaEventRecord(end, stream), "cannot record an event");
        cuda_check(cudaEventSynchronize(end), "the device failed");
        float ms = 0.0f;
        cuda_check(cudaEventElapsedTime(&ms, begin, end), "cannot read an event");
        best = std::max(best, static_cast<double>(bytes) / (static_cast<double>(ms) / 1000.0));
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    return best;
}

}  // namespace foresay::kernels::cuda
