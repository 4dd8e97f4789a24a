// The devices of this process, by index. Creating a context asks for the device's properties, no more; its stream and
// the scratch memory of the decode kernel come with the first backend that needs them.

#include "kernels/cuda/device/device_context.h"

#include <map>

namespace foresay::kernels::cuda {

DeviceContext& DeviceContext::of(int device) {
    static auto& mutex = *new std::mutex;
    static auto& contexts =
        *new std::map<int, std::unique_ptr<DeviceContext>>;  // never destroyed: the driver goes first
    const std::lock_guard lock(mutex);
    std::unique_ptr<DeviceContext>& context = contexts[device];
    if (!context) context.reset(new DeviceContext(device));
    return *context;
}

const Stream& DeviceContext::stream() {
    if (!stream_) stream_ = std::make_unique<Stream>();
    return *stream_;
}

}  // namespace foresay::kernels::cuda
