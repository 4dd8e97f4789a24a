// kernels/cuda/device/device.h: what every file of the CUDA backend stands on: checked calls, a stream, owned memory.
//
// Units:    bytes where a name says so, elements of T otherwise. All memory is of the device that was current when it
//           was made (DeviceGuard).
// Threads:  a Stream and what is enqueued on it belong to one caller at a time.
// Cost:     allocations synchronise the device; they belong into prepare() and allocate*(), never into a forward.
// Errors:   cuda_check throws Error: an allocation that fails says how much was wanted and how much was free. Anything
//           that fails on the device later is a bug or a broken device and surfaces at the next synchronisation.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

namespace foresay::kernels::cuda {

// Throws Error "<what>: <reason>" unless `status` is success.
void cuda_check(cudaError_t status, const char* what);
// After a launch: a configuration that the device cannot run is a bug, said with the kernel's name.
inline void launched(const char* kernel) { cuda_check(cudaGetLastError(), kernel); }

// Makes a device current for a scope.
class DeviceGuard {
public:
    explicit DeviceGuard(int device) {
        cuda_check(cudaGetDevice(&before_), "cannot ask for the current device");
        if (before_ != device) cuda_check(cudaSetDevice(device), "cannot use the device");
    }
    ~DeviceGuard() { cudaSetDevice(before_); }
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

private:
    int before_ = 0;
};

// A stream that does not wait for the default stream.
class Stream {
public:
    Stream() { cuda_check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cannot make a stream"); }
    ~Stream() {
        if (handle_ != nullptr) cudaStreamDestroy(handle_);
    }
    Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
    Stream& operator=(Stream&& other) noexcept {
        std::swap(handle_, other.handle_);
        return *this;
    }
    cudaStream_t get() const { return handle_; }
    operator cudaStream_t() const { return handle_; }
    // Waits for everything enqueued so far; throws what went wrong on the device since the last time.
    void wait() const { cuda_check(cudaStreamSynchronize(handle_), "the device failed"); }

private:
    cudaStream_t handle_ = nullptr;
};

// Bytes in the device's memory; throws Error with the sizes when there are too few.
void* device_allocate(std::size_t bytes);
void device_free(void* memory) noexcept;
// Bytes of page-locked host memory, which the device reads and writes by copies.
void* pinned_allocate(std::size_t bytes);
void pinned_free(void* memory) noexcept;

namespace detail {
struct DeviceMemory {
    static void* allocate(std::size_t bytes) { return device_allocate(bytes); }
    static void release(void* memory) noexcept { device_free(memory); }
};
struct PinnedMemory {
    static void* allocate(std::size_t bytes) { return pinned_allocate(bytes); }
    static void release(void* memory) noexcept { pinned_free(memory); }
};

// `count` elements of T, not initialised, owned.
template <typename T, typename Memory>
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::size_t count) : count_(count) {
        if (count > 0) data_ = static_cast<T*>(Memory::allocate(count * sizeof(T)));
    }
    ~Buffer() {
        if (data_ != nullptr) Memory::release(data_);
    }
    Buffer(Buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
        return *this;
    }

    T* data() const { return data_; }
    std::size_t size() const { return count_; }
    std::size_t bytes() const { return count_ * sizeof(T); }
    bool empty() const { return count_ == 0; }

private:
    T* data_ = nullptr;
    std::size_t count_ = 0;
};
}  // namespace detail

template <typename T>
using DeviceBuffer = detail::Buffer<T, detail::DeviceMemory>;
template <typename T>
using PinnedBuffer = detail::Buffer<T, detail::PinnedMemory>;

// Host values to new device memory. Waits for the copy: for load time.
template <typename T>
DeviceBuffer<T> to_device(std::span<const T> values) {
    DeviceBuffer<T> buffer(values.size());
    if (!values.empty()) {
        cuda_check(cudaMemcpy(buffer.data(), values.data(), values.size_bytes(), cudaMemcpyHostToDevice),
                   "cannot copy to the device");
    }
    return buffer;
}

// The constants of a device that kernels are sized by.
struct DeviceInfo {
    int index = 0;
    std::string name;
    int capability = 0;            // 90 for 9.0
    int processors = 0;            // streaming multiprocessors
    std::size_t shared_bytes = 0;  // most dynamic shared memory of a block, opted in
    std::size_t l2_bytes = 0;
    std::size_t memory_bytes = 0;
};
DeviceInfo device_info(int device);

}  // namespace foresay::kernels::cuda
