// Decides by what was measured with 8B on an H200 (docs/experiments/attention.md). A launch per layer costs some ten
// microseconds more than attention within the decode kernel, which several tiles of a sequence earn back together.

#include "kernels/cuda/attention/attention_choice.h"

#include <atomic>

#include "kernels/cuda/attention/flash_decode.h"
#include "kernels/cuda/attention/flash_prefill.h"

namespace foresay::kernels::cuda {
namespace {

// Tiles times heads times positions times values of a head from which on flash attention of decode rows is faster:
// that of 16 rows of 8B after 4,096 positions.
constexpr std::int64_t kDecodeWork = std::int64_t{4} * 8 * 8192 * 128;
// Tiles of all heads from which on flash attention of prefill rows fills the device.
constexpr std::int32_t kPrefillTiles = 2048;

std::atomic<FlashAttention> chosen = FlashAttention::by_speed;

}  // namespace

void choose_flash_attention(FlashAttention choice) { chosen = choice; }

bool takes_flash_decode(const AttendCall& call, const DeviceInfo& device, std::int32_t reach, std::int32_t together) {
    if (chosen == FlashAttention::never || !can_flash_decode(call, device)) return false;
    if (chosen == FlashAttention::always) return true;
    return together > 1 && std::int64_t{call.tiles} * call.head_tiles * reach * call.layout.width >= kDecodeWork;
}

bool takes_flash_prefill(const AttendCall& call, const DeviceInfo& device) {
    if (chosen == FlashAttention::never || !can_flash_prefill(call, device)) return false;
    return chosen == FlashAttention::always || call.tiles * call.head_tiles >= kPrefillTiles;
}

}  // namespace foresay::kernels::cuda
