// Checked calls, allocation, and the list of devices.

#include "kernels/cuda/device/device.h"

#include <atomic>
#include <cstdio>
#include <deque>

#include "base/error.h"
#include "kernels/cuda/device/probe.h"
#include "kernels/ops.h"

namespace foresay::kernels {
namespace cuda {
namespace {

std::string gigabytes(std::size_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
    return text;
}

std::atomic<int> failing_launch = 0;  // counts down to the launch that fail_launch() asked for

}  // namespace

void cuda_check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // an error that is reported must not be found again by the next call
    throw Error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

// A launch that a test makes fail has run all the same: the caller cannot tell, and must not rely on either.
void launch_check(cudaError_t status, const char* kernel) {
    if (failing_launch.load(std::memory_order_relaxed) > 0 && failing_launch.fetch_sub(1) == 1) {
        throw Error(std::string("CUDA: ") + kernel + ": made to fail by a test");
    }
    cuda_check(status, kernel);
}

void fail_launch(int nth) { failing_launch = nth; }

int current_device() {
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    return device;
}

std::recursive_mutex& device_mutex(int device) {
    // Never destroyed, because buffers that outlive main() still take their device's.
    static auto& mutexes = *new std::deque<std::recursive_mutex>;
    static auto& mutex = *new std::mutex;
    const std::lock_guard lock(mutex);
    const auto index = static_cast<std::size_t>(device);
    while (mutexes.size() <= index) mutexes.emplace_back();
    return mutexes[index];
}

void* device_allocate(std::size_t bytes) {
    void* memory = nullptr;
    const cudaError_t status = cudaMalloc(&memory, bytes);
    if (status == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        std::size_t free = 0, total = 0;
        cudaMemGetInfo(&free, &total);
        throw Error("the device has no room for another " + gigabytes(bytes) + ": " + gigabytes(free) + " of its " +
                    gigabytes(total) + " are free; use a smaller model, a smaller context or --device cpu");
    }
    cuda_check(status, "cannot allocate memory");
    return memory;
}

void device_free(void* memory, int device) noexcept {
    const DeviceScope scope(device, std::nothrow);
    cudaFree(memory);
}

void* pinned_allocate(std::size_t bytes) {
    void* memory = nullptr;
    cuda_check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cannot allocate page-locked memory");
    return memory;
}

void pinned_free(void* memory, int device) noexcept {
    const DeviceScope scope(device, std::nothrow);
    cudaFreeHost(memory);
}

DeviceInfo device_info(int device) {
    cudaDeviceProp properties{};
    cuda_check(cudaGetDeviceProperties(&properties, device), "cannot ask for the device's properties");
    DeviceInfo info;
    info.index = device;
    info.name = properties.name;
    info.capability = properties.major * 10 + properties.minor;
    info.processors = properties.multiProcessorCount;
    info.shared_bytes = properties.sharedMemPerBlockOptin;
    info.l2_bytes = static_cast<std::size_t>(properties.l2CacheSize);
    info.memory_bytes = properties.totalGlobalMem;
    return info;
}

}  // namespace cuda

// Asking has_code_for() and for free memory creates the device's context, for every device of the machine.
std::vector<CudaDevice> cuda_devices(std::string* why) {
    const auto give_up = [&](std::string reason) {
        if (why != nullptr) *why = std::move(reason);
        return std::vector<CudaDevice>();
    };
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status == cudaErrorInsufficientDriver) {
        int driver = 0;
        if (cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0) {
            return give_up("the NVIDIA driver is too old for CUDA " + std::to_string(CUDART_VERSION / 1000));
        }
        return give_up("no NVIDIA driver was found");
    }
    if (status != cudaSuccess || count == 0) {
        cudaGetLastError();
        return give_up(status == cudaErrorNoDevice || count == 0
                           ? std::string("no NVIDIA device was found")
                           : std::string("CUDA does not start: ") + cudaGetErrorString(status));
    }
    std::vector<CudaDevice> devices;
    std::string passed;
    for (int index = 0; index < count; ++index) {
        const cuda::DeviceInfo info = cuda::device_info(index);
        if (!cuda::has_code_for(index)) {
            passed = info.name + " has compute capability " + std::to_string(info.capability / 10) + "." +
                     std::to_string(info.capability % 10) + ", for which this build has no code";
            continue;
        }
        CudaDevice device{index, info.name, info.capability, static_cast<std::int64_t>(info.memory_bytes), 0};
        cuda::DeviceGuard guard(index);
        std::size_t free = 0, total = 0;
        if (cudaMemGetInfo(&free, &total) == cudaSuccess) device.free_memory = static_cast<std::int64_t>(free);
        devices.push_back(std::move(device));
    }
    if (devices.empty()) return give_up(passed);
    return devices;
}

}  // namespace foresay::kernels
