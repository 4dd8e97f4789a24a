// kernels/cuda/device/device.h: what every file of the CUDA backend uses: checked calls, the current device, owned
// memory, streams and events.
//
// Units:    bytes where a name says so, elements of T otherwise.
// Devices:  CUDA keeps a current device for each thread. Memory, streams and events belong to the device that was
//           current when they were made; they remember it, and their destructors select it again. Everything else runs
//           on the current device: a public method of the backend opens a DeviceScope first.
// Hangs:    while a device that was given up is busy (kernels/given_up.h), destructors leave all as it is.
// Threads:  a DeviceScope holds the device's lock, so that one thread at a time uses a device. A buffer takes the lock
//           to free its memory.
// Cost:     allocations synchronise the device; they belong into prepare() and allocate*(), never into a forward.
// Errors:   cuda_check throws Error: an allocation that fails says how much was wanted and how much was free. Anything
//           that fails on the device later is a bug or a broken device and surfaces at the next synchronisation.
#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <new>
#include <span>
#include <string>
#include <utility>

#include "kernels/given_up.h"

namespace foresay::kernels::cuda {

// Throws Error "<what>: <reason>" unless `status` is success.
void cuda_check(cudaError_t status, const char* what);
// After a launch, or with what a launch returned: throws Error with the kernel's name. All launches pass through here,
// so that a test can make one fail.
void launch_check(cudaError_t status, const char* kernel);
inline void launched(const char* kernel) { launch_check(cudaGetLastError(), kernel); }
// For tests: reports the nth launch of this process from now on as failed, once. 0: none.
void fail_launch(int nth);

// The device that is current in this thread.
int current_device();

// Makes a device current in this thread for a scope.
class DeviceGuard {
public:
    explicit DeviceGuard(int device) : before_(current_device()), changed_(before_ != device) {
        if (changed_) cuda_check(cudaSetDevice(device), "cannot use the device");
    }
    // For destructors: if the device cannot be used, keeps the current one.
    DeviceGuard(int device, const std::nothrow_t&) noexcept {
        changed_ = cudaGetDevice(&before_) == cudaSuccess && before_ != device && cudaSetDevice(device) == cudaSuccess;
    }
    ~DeviceGuard() {
        if (changed_) cudaSetDevice(before_);
    }
    DeviceGuard(const DeviceGuard&) = delete;
    DeviceGuard& operator=(const DeviceGuard&) = delete;

private:
    int before_ = 0;
    bool changed_ = false;
};

// The lock of a device. Recursive, because a thread that holds it also frees buffers.
std::recursive_mutex& device_mutex(int device);

// A device for the use of one thread: its lock is held, and it is current.
class DeviceScope {
public:
    explicit DeviceScope(int device) : lock_(device_mutex(device)), guard_(device) {}
    DeviceScope(int device, const std::nothrow_t& quietly) noexcept
        : lock_(device_mutex(device)), guard_(device, quietly) {}

private:
    std::lock_guard<std::recursive_mutex> lock_;
    DeviceGuard guard_;
};

// A stream that does not wait for the default stream.
class Stream {
public:
    Stream() : device_(current_device()) {
        cuda_check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cannot make a stream");
    }
    // One whose kernels go before those of other streams of the device.
    static Stream urgent() {
        int least = 0, greatest = 0;
        cuda_check(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cannot ask for the priorities of streams");
        cudaStream_t handle = nullptr;
        cuda_check(cudaStreamCreateWithPriority(&handle, cudaStreamNonBlocking, greatest), "cannot make a stream");
        return Stream(handle);
    }
    ~Stream() {
        if (handle_ == nullptr || any_device_hangs()) return;
        const DeviceScope scope(device_, std::nothrow);
        cudaStreamDestroy(handle_);
    }
    Stream(Stream&& other) noexcept : handle_(std::exchange(other.handle_, nullptr)), device_(other.device_) {}
    Stream& operator=(Stream&& other) noexcept {
        std::swap(handle_, other.handle_);
        std::swap(device_, other.device_);
        return *this;
    }
    cudaStream_t get() const { return handle_; }
    operator cudaStream_t() const { return handle_; }
    // Waits for everything enqueued so far; throws what went wrong on the device since the last time.
    void wait() const { cuda_check(cudaStreamSynchronize(handle_), "the device failed"); }
    // Whether all of that has run. Needs no DeviceScope.
    bool has_run() const { return has_run(cudaStreamQuery(handle_)); }
    // What the query of a stream or of an event has returned; throws Error when the device has failed.
    static bool has_run(cudaError_t status) {
        if (status == cudaErrorNotReady) return false;
        cuda_check(status, "the device failed");
        return true;
    }

private:
    explicit Stream(cudaStream_t handle) : handle_(handle), device_(current_device()) {}

    cudaStream_t handle_ = nullptr;
    int device_ = 0;
};

// An event without times.
class Event {
public:
    Event() : device_(current_device()) {
        cuda_check(cudaEventCreateWithFlags(&handle_, cudaEventDisableTiming), "cannot make an event");
    }
    ~Event() {
        if (any_device_hangs()) return;
        const DeviceScope scope(device_, std::nothrow);
        cudaEventDestroy(handle_);
    }
    Event(const Event&) = delete;
    Event& operator=(const Event&) = delete;
    void record(const Stream& stream) { cuda_check(cudaEventRecord(handle_, stream), "cannot record an event"); }
    void wait() const { cuda_check(cudaEventSynchronize(handle_), "the device failed"); }
    // Whether the stream has come to it. Needs no DeviceScope.
    bool has_come() const { return Stream::has_run(cudaEventQuery(handle_)); }
    // For destructors: whatever has become of the device.
    void wait(const std::nothrow_t&) const noexcept { cudaEventSynchronize(handle_); }
    // What is enqueued on the stream from now on, which may be another device's, waits for the event.
    void await_on(const Stream& stream) const {
        cuda_check(cudaStreamWaitEvent(stream, handle_, 0), "cannot wait for an event");
    }

private:
    cudaEvent_t handle_ = nullptr;
    int device_ = 0;
};

// Lets kernels and copies of the current device use the memory of device `other`. False: the two cannot.
bool enable_peer_access(int other);
// Whether FORESAY_NO_PEER_ACCESS is in the environment: then nothing uses the memory of another device.
bool forbids_peer_access();

// Bytes in the current device's memory; throws Error with the sizes when there are too few.
void* device_allocate(std::size_t bytes);
void device_free(void* memory, int device) noexcept;
// Bytes of page-locked host memory, which the device reads and writes by copies.
void* pinned_allocate(std::size_t bytes);
void pinned_free(void* memory, int device) noexcept;
// The same, for kernels of all devices to read and write.
void* mapped_allocate(std::size_t bytes);

namespace detail {
struct DeviceMemory {
    static void* allocate(std::size_t bytes) { return device_allocate(bytes); }
    static void release(void* memory, int device) noexcept { device_free(memory, device); }
};
struct PinnedMemory {
    static void* allocate(std::size_t bytes) { return pinned_allocate(bytes); }
    static void release(void* memory, int device) noexcept { pinned_free(memory, device); }
};
struct MappedMemory : PinnedMemory {
    static void* allocate(std::size_t bytes) { return mapped_allocate(bytes); }
};

// `count` elements of T, not initialised, owned.
template <typename T, typename Memory>
class Buffer {
public:
    Buffer() = default;
    explicit Buffer(std::size_t count) : count_(count) {
        if (count == 0) return;
        device_ = current_device();
        data_ = static_cast<T*>(Memory::allocate(count * sizeof(T)));
    }
    ~Buffer() {
        if (data_ != nullptr) Memory::release(data_, device_);
    }
    Buffer(Buffer&& other) noexcept
        : data_(std::exchange(other.data_, nullptr)), count_(std::exchange(other.count_, 0)), device_(other.device_) {}
    Buffer& operator=(Buffer&& other) noexcept {
        std::swap(data_, other.data_);
        std::swap(count_, other.count_);
        std::swap(device_, other.device_);
        return *this;
    }

    T* data() const { return data_; }
    std::size_t size() const { return count_; }
    std::size_t bytes() const { return count_ * sizeof(T); }
    bool empty() const { return count_ == 0; }
    // Where the memory lies; of no meaning when empty.
    int device() const { return device_; }

private:
    T* data_ = nullptr;
    std::size_t count_ = 0;
    int device_ = 0;
};
}  // namespace detail

template <typename T>
using DeviceBuffer = detail::Buffer<T, detail::DeviceMemory>;
template <typename T>
using PinnedBuffer = detail::Buffer<T, detail::PinnedMemory>;
template <typename T>
using MappedBuffer = detail::Buffer<T, detail::MappedMemory>;

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
    std::size_t shared_bytes = 0;  // most dynamic shared memory of a thread block, opted in
    std::size_t l2_bytes = 0;
    std::size_t memory_bytes = 0;
};
DeviceInfo device_info(int device);

}  // namespace foresay::kernels::cuda
