// kernels/cuda/device/device_context.h: what all backends of one device share in this process.
//
// The decode kernel's thread blocks wait for each other, so all of them must be resident, and they count in memory that
// belongs to the device (kernels/cuda/decode/gemv.h). Two launches that ran side by side would wait for multiprocessors
// that the other holds, and count in each other's counters. So a device has one stream, and every backend of the device
// enqueues on it; only copies may run beside. Backends that must run at the same time have a context each, with a part
// of the multiprocessors.
//
// Life:     made at the first use, kept for as long as the process runs.
// Threads:  of() and current() from any. A thread that enqueues, waits or captures holds a DeviceScope of the device: a
//           launch of one thread must not get into the graph that another one captures on the same stream.
// Errors:   of() and current() throw Error when the device cannot be asked.
#pragma once

#include <memory>

#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

struct DecodeScratch;  // kernels/cuda/decode/gemv.cu

class DeviceContext {
public:
    // The device, or one of `parts` parts of its multiprocessors (CudaOptions).
    static DeviceContext& of(int device, int part = 0, int parts = 1);
    // That of the innermost ContextScope of this thread, or else the whole device that is current.
    static DeviceContext& current();
    DeviceContext(const DeviceContext&) = delete;
    DeviceContext& operator=(const DeviceContext&) = delete;

    const DeviceInfo& info() const { return info_; }
    // Made at the first call. Needs a DeviceScope.
    const Stream& stream();
    // What runs on its stream has not answered in time (kernels/given_up.h). Copies beside it end when it and the
    // streams of other devices do.
    void give_up();
    // Memory of the decode kernel, which makes it when it packs the first weights.
    std::shared_ptr<DecodeScratch> decode_scratch;

private:
    explicit DeviceContext(int device, int parts) : info_(device_info(device)) { info_.processors /= parts; }

    DeviceInfo info_;
    std::unique_ptr<Stream> stream_;
};

// A context, and so its device, for the use of one thread.
class ContextScope {
public:
    explicit ContextScope(DeviceContext& context);
    ~ContextScope();
    ContextScope(const ContextScope&) = delete;
    ContextScope& operator=(const ContextScope&) = delete;

private:
    DeviceScope device_;
    DeviceContext* before_;
};

}  // namespace foresay::kernels::cuda
