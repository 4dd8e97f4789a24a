// kernels/cuda/hosts/device_rows.h: the residual stream of a forward of the CUDA backend, copied to and from other
// memory of its device: what crosses to another host (kernels/hosts/link_device.h).
//
// Threads:  as for the ops.
// Cost:     a copy within the device. Neither call waits for it.
// Errors:   Error, as a forward.
#pragma once

#include <cstddef>

#include "kernels/cuda/device/device.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

class DeviceRows {
public:
    virtual ~DeviceRows() = default;
    virtual int device_index() const = 0;
    // All rows of the forward, [T, D]. What is enqueued on `then` later comes after the copy.
    virtual void copy_rows_to(Workspace& workspace, void* to, std::size_t bytes, const Stream& then) = 0;
    // The copy comes after what is enqueued on `before`, and before what the backend runs next.
    virtual void copy_rows_from(Workspace& workspace, const void* from, std::size_t bytes, const Stream& before) = 0;
};

}  // namespace foresay::kernels::cuda
