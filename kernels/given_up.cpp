#include "kernels/given_up.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <vector>

namespace foresay::kernels {
namespace {

struct Device {
    const void* device;
    bool (*busy)(const void* device);
};

// Never destroyed: what outlives main() asks as well.
struct Devices {
    std::mutex mutex;
    std::vector<Device> all;
    std::atomic<bool> any = false;
};

Devices& devices() {
    static auto& devices = *new Devices;
    return devices;
}

}  // namespace

void give_up_device(const void* device, bool (*busy)(const void* device)) {
    Devices& given_up = devices();
    const std::lock_guard lock(given_up.mutex);
    if (std::ranges::find(given_up.all, device, &Device::device) == given_up.all.end()) {
        given_up.all.push_back({device, busy});
    }
    given_up.any = true;
}

bool any_device_hangs() noexcept {
    Devices& given_up = devices();
    if (!given_up.any) return false;
    const std::lock_guard lock(given_up.mutex);
    std::erase_if(given_up.all, [](const Device& one) { return !one.busy(one.device); });
    given_up.any = !given_up.all.empty();
    return given_up.any;
}

}  // namespace foresay::kernels
