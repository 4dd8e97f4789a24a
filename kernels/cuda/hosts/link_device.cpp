// A GPU's memory for NCCL (kernels/hosts/link_device.h). NCCL has a stream of its own here: its kernels wait for
// another host, and on the backend's stream all that comes later would wait with them.
#include <cstring>

#include "base/error.h"
#include "kernels/cuda/device/device_context.h"
#include "kernels/cuda/hosts/device_rows.h"
#include "kernels/hosts/link_device.h"

namespace foresay::kernels {
namespace cuda {
namespace {

struct DeviceLinkBuffer final : LinkBuffer {
    DeviceLinkBuffer(int of, std::size_t bytes) : device(of) {
        const DeviceScope scope(device);
        data = device_allocate(bytes);
        size = bytes;
    }
    ~DeviceLinkBuffer() override { device_free(data, device); }
    int device;
};

class CudaLinkDevice final : public LinkDevice {
public:
    explicit CudaLinkDevice(int device) : device_(DeviceContext::of(device).info().index) {
        const DeviceScope scope(device_);
        stream_ = std::make_unique<Stream>();
        pinned_ = pinned_allocate(kPinned);
    }
    ~CudaLinkDevice() override { pinned_free(pinned_, device_); }
    CudaLinkDevice(const CudaLinkDevice&) = delete;
    CudaLinkDevice& operator=(const CudaLinkDevice&) = delete;

    std::unique_ptr<LinkBuffer> allocate(std::size_t bytes) override {
        return std::make_unique<DeviceLinkBuffer>(device_, bytes);
    }
    // Small messages, most of all, go by page-locked memory.
    void write(LinkBuffer& to, std::span<const std::byte> from) override {
        check(from.size() <= to.size, "a message larger than its buffer");
        const DeviceScope scope(device_);
        const void* source = from.data();
        if (from.size() <= kPinned) source = std::memcpy(pinned_, from.data(), from.size());
        cuda_check(cudaMemcpyAsync(to.data, source, from.size(), cudaMemcpyHostToDevice, *stream_),
                   "cannot copy a message to the device");
        stream_->wait();
    }
    void read(const LinkBuffer& from, std::span<std::byte> to) override {
        check(to.size() <= from.size, "a message larger than its buffer");
        const DeviceScope scope(device_);
        void* const target = to.size() <= kPinned ? pinned_ : static_cast<void*>(to.data());
        cuda_check(cudaMemcpyAsync(target, from.data, to.size(), cudaMemcpyDeviceToHost, *stream_),
                   "cannot copy a message from the device");
        stream_->wait();
        if (target == pinned_) std::memcpy(to.data(), pinned_, to.size());
    }
    int call(int (*work)(void*), void* with) override {
        const DeviceScope scope(device_);
        return work(with);
    }
    void* stream() override { return stream_->get(); }
    bool idle() override {
        const DeviceScope scope(device_);
        const cudaError_t status = cudaStreamQuery(*stream_);
        if (status == cudaErrorNotReady) return false;
        cuda_check(status, "the device failed");
        return true;
    }
    bool take_rows(LinkBuffer& to, Ops& from, Workspace& workspace, std::int32_t rows) override {
        auto* const source = dynamic_cast<DeviceRows*>(&from);
        if (source == nullptr || source->device_index() != device_) return false;
        source->copy_rows_to(workspace, to.data, bytes_of(workspace, rows), *stream_);
        return true;
    }
    bool give_rows(const LinkBuffer& from, Ops& to, Workspace& workspace, std::int32_t rows) override {
        auto* const target = dynamic_cast<DeviceRows*>(&to);
        if (target == nullptr || target->device_index() != device_) return false;
        target->copy_rows_from(workspace, from.data, bytes_of(workspace, rows), *stream_);
        return true;
    }

private:
    static constexpr std::size_t kPinned = std::size_t{1} << 20;

    static std::size_t bytes_of(const Workspace& workspace, std::int32_t rows) {
        return static_cast<std::size_t>(rows) * static_cast<std::size_t>(workspace.shape.d_model) * sizeof(float);
    }

    int device_;
    std::unique_ptr<Stream> stream_;
    void* pinned_ = nullptr;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<LinkDevice> make_cuda_link_device(std::int32_t device) {
    return std::make_unique<cuda::CudaLinkDevice>(device);
}

}  // namespace foresay::kernels
