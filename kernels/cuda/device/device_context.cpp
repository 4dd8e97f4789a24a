// The devices of this process, by index. Creating a context asks for the device's properties, no more; its stream and
// the scratch memory of the decode kernel come with the first backend that needs them.

#include "kernels/cuda/device/device_context.h"

#include <map>
#include <tuple>

namespace foresay::kernels::cuda {

namespace {

thread_local DeviceContext* scoped = nullptr;

}  // namespace

DeviceContext& DeviceContext::of(int device, int part, int parts) {
    static auto& mutex = *new std::mutex;
    // Never destroyed: the driver goes first.
    static auto& contexts = *new std::map<std::tuple<int, int, int>, std::unique_ptr<DeviceContext>>;
    const std::lock_guard lock(mutex);
    std::unique_ptr<DeviceContext>& context = contexts[{device, part, parts}];
    if (!context) context.reset(new DeviceContext(device, parts));
    return *context;
}

DeviceContext& DeviceContext::current() {
    const int device = current_device();
    return scoped != nullptr && scoped->info().index == device ? *scoped : of(device);
}

ContextScope::ContextScope(DeviceContext& context)
    : device_(context.info().index), before_(std::exchange(scoped, &context)) {}
ContextScope::~ContextScope() { scoped = before_; }

void DeviceContext::give_up() {
    if (!stream_) return;
    give_up_device(stream_.get(), [](const void* stream) {
        return cudaStreamQuery(*static_cast<const Stream*>(stream)) == cudaErrorNotReady;
    });
}

const Stream& DeviceContext::stream() {
    if (!stream_) stream_ = std::make_unique<Stream>();
    return *stream_;
}

}  // namespace foresay::kernels::cuda
