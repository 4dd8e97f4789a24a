// Checked calls, allocation, and the list of devices.
//
// CUDA reports an asynchronous failure (a kernel that reads outside its memory, say) from whatever call comes next, and
// from every call after it. cuda_check() names the call that noticed it, which is not always the one at fault; set
// CUDA_LAUNCH_BLOCKING=1 to find that one.

#include "kernels/cuda/device/device.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <deque>

#include "base/error.h"
#include "kernels/cuda/device/probe.h"
#include "kernels/cuda_info.h"
#include "kernels/given_up.h"
#include "kernels/ops.h"

namespace foresay::kernels {
namespace cuda {
namespace {

// For messages: "1.50 GiB".
std::string gigabytes(std::size_t bytes) {
    char text[32];
    std::snprintf(text, sizeof text, "%.2f GiB", static_cast<double>(bytes) / (1024.0 * 1024.0 * 1024.0));
    return text;
}

std::atomic<int> failing_launch = 0;  // counts down to the launch that fail_launch() asked for

}  // namespace

// `what` is a clause without a subject, such as "cannot copy a page".
void cuda_check(cudaError_t status, const char* what) {
    if (status == cudaSuccess) return;
    cudaGetLastError();  // clears the error, so that the next call does not report it again
    throw Error(std::string("CUDA: ") + what + ": " + cudaGetErrorString(status));
}

// A launch that a test makes fail has been enqueued all the same: callers must cope with a launch that failed and with
// one that ran.
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

bool enable_peer_access(int other) {
    if (!cuda_peer_access(current_device(), other)) return false;
    const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
    if (status != cudaSuccess) cudaGetLastError();  // else the next launch would report it
    return status == cudaSuccess || status == cudaErrorPeerAccessAlreadyEnabled;
}

bool forbids_peer_access() { return std::getenv("FORESAY_NO_PEER_ACCESS") != nullptr; }

std::recursive_mutex& device_mutex(int device) {
    // Never destroyed, because buffers that outlive main() still lock their device. A deque, because references to its
    // elements stay valid as it grows.
    static auto& mutexes = *new std::deque<std::recursive_mutex>;
    static auto& mutex = *new std::mutex;
    const std::lock_guard lock(mutex);
    const auto index = static_cast<std::size_t>(device);
    while (mutexes.size() <= index) mutexes.emplace_back();
    return mutexes[index];
}

// Allocation that fails is the error that users meet most, so it says what was wanted, what there is, and what to do.
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

// cudaFree waits until the device, and each that reaches it, no longer uses the memory. Its status is ignored:
// destructors run while the process ends, when the driver may be gone.
void device_free(void* memory, int device) noexcept {
    if (any_device_hangs()) return;
    const DeviceScope scope(device, std::nothrow);
    cudaFree(memory);
}

// Slow, like cudaMalloc, and it takes memory that the system cannot page out: for small buffers, at load time.
void* pinned_allocate(std::size_t bytes) {
    void* memory = nullptr;
    cuda_check(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault), "cannot allocate page-locked memory");
    return memory;
}

void* mapped_allocate(std::size_t bytes) {
    void* memory = nullptr;
    cuda_check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped),
               "cannot allocate page-locked memory for all devices");
    return memory;
}

void pinned_free(void* memory, int device) noexcept {
    if (any_device_hangs()) return;
    const DeviceScope scope(device, std::nothrow);
    cudaFreeHost(memory);
}

// cudaGetDeviceProperties() is slow; DeviceContext keeps the result.
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

CudaVersions cuda_versions() {
    CudaVersions versions;
    if (cudaDriverGetVersion(&versions.driver) != cudaSuccess) versions.driver = 0;
    if (cudaRuntimeGetVersion(&versions.runtime) != cudaSuccess) versions.runtime = 0;
    return versions;
}

bool cuda_peer_access(std::int32_t from, std::int32_t to) {
    if (cuda::forbids_peer_access()) return false;
    int can = 0;
    return cudaDeviceCanAccessPeer(&can, from, to) == cudaSuccess && can != 0;
}

// The devices that this build has code for. code_version() and cudaMemGetInfo() create a context on every device of the
// machine, which takes a while each.
std::vector<CudaDevice> cuda_devices(std::string* why) {
    // No devices, and the reason for it.
    const auto give_up = [&](std::string reason) {
        if (why != nullptr) *why = std::move(reason);
        return std::vector<CudaDevice>();
    };
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    // Also the status where there is no driver at all; its version tells the two apart.
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
    std::string passed;  // why the last device that was passed over cannot be used
    for (int index = 0; index < count; ++index) {
        const cuda::DeviceInfo info = cuda::device_info(index);
        if (cuda::code_version(index) == 0) {
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
