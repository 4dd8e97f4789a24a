// kernels/hosts/link_device.h: where the bytes lie that NCCL sends and receives: memory of a GPU, or the host's for a
// library that moves that (kernels/hosts/nccl.h).
//
// Threads:  one caller at a time.
// Cost:     take_rows() and give_rows() copy within the GPU and do not wait for it. write() and read() wait.
// Errors:   Error: no memory, a device that fails.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/ops.h"

namespace foresay::kernels {

struct LinkBuffer {
    virtual ~LinkBuffer() = default;
    void* data = nullptr;
    std::size_t size = 0;  // bytes
};

class LinkDevice {
public:
    virtual ~LinkDevice() = default;
    virtual std::unique_ptr<LinkBuffer> allocate(std::size_t bytes) = 0;
    // From the host to the beginning of a buffer, and back.
    virtual void write(LinkBuffer& to, std::span<const std::byte> from) = 0;
    virtual void read(const LinkBuffer& from, std::span<std::byte> to) = 0;
    // Calls `work` where NCCL finds the device current.
    virtual int call(int (*work)(void*), void* with) = 0;
    // What NCCL enqueues on, a cudaStream_t; null for the host.
    virtual void* stream() = 0;
    // Whether all that was enqueued has run.
    virtual bool idle() = 0;
    // Copies the residual stream of a backend's forward, [T, D], to the beginning of a buffer and back, within the
    // device. False: the backend is on another one, and nothing was done.
    virtual bool take_rows(LinkBuffer&, Ops&, Workspace&, std::int32_t /*rows*/) { return false; }
    virtual bool give_rows(const LinkBuffer&, Ops&, Workspace&, std::int32_t /*rows*/) { return false; }
};

std::unique_ptr<LinkDevice> make_host_link_device();
// GPU `device` of this process. Throws Error in a build without CUDA.
std::unique_ptr<LinkDevice> make_cuda_link_device(std::int32_t device);

}  // namespace foresay::kernels
